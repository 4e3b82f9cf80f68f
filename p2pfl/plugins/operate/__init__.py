"""Peers on devices: why one does not run, and bundles that install one."""
