"""Bytes from one peer to others; nothing here knows what they mean."""
