"""Privacy that a run spends: the budget of its data, the meter of its releases, and what is promised for it."""
