"""Ledgers: which models and masks each neighbour has received, and which corrections are pending."""
