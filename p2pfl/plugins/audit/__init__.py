"""Attacks on the releases of peers, compared with the guarantees of the accountant."""

from p2pfl.plugins.audit.audit import Audit, Effort, audit

__all__ = ["Audit", "Effort", "audit"]
