"""Additive models from exact totals: base learners, their penalties, and component-wise boosting."""
