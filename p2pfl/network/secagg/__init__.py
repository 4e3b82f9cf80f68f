"""Secure sums over messages: senders, receivers and relays of masked terms."""
