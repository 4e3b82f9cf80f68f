"""What observers can learn: the exact accountant, calibration and budgets."""
