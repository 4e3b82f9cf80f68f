"""Secure sums: a neighbourhood learns the sum of its updates and no update."""
