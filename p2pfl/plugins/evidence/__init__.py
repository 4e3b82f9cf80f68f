"""What a run proves, and what it forgets: certificates that others can check without the data."""
