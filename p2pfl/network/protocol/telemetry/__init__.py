"""Telemetry for observers that a peer's owner lists: decisions of both ends, without a clock, a loop or a disk."""
