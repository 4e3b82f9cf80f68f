"""Builders of graphs and schedules: what ``topology.kind`` of an experiment file names."""
