"""Masks of one live peer: what hides its releases, what it waits for, and what stays unsettled."""
