"""Secure sums over messages: who sends what to whom, and when."""
