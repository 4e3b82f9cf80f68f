"""Agreement of a majority on one value: whether a vanished peer's release counts, or who takes part in a sum."""
