"""Agreements of a session: which releases and attempts count, and what follows from that."""
