"""One live peer."""
