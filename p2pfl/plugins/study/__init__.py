"""Sweeps: one experiment under many settings and seeds, run in parallel and never twice."""
