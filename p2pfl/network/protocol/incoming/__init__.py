"""Incoming messages: limits, plausibility, evidence of equivocation, and the mailbox of models."""
