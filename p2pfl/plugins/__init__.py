"""Plug-ins that register through entry points, as a third party's package does."""
