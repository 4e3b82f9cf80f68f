"""Generalised linear models with penalties: families, fits, lasso paths and tables of coefficients."""
