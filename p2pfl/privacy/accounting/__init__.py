"""Privacy accounting: the exact accountant, calibration and budgets."""
