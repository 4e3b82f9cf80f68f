"""Many real peers in virtual time, with faults: a seed is a history, and a verdict on it."""
