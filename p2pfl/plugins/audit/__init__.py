"""Attacks on the releases of peers, compared with the guarantees of the accountant."""
