"""All rows at once."""
