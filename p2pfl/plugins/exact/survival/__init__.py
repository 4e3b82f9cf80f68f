"""Times until an event: their grid, Cox regression, survival curves and tests."""
