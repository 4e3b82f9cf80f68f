"""Bundles that install one peer each: files without secrets, and keys that are made on the device."""
