"""Scores of whole sets of samples, which are no means over samples; importances and coefficients of features."""
