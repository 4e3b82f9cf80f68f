"""Attacks on what peers release, held against what the accountant promises."""

from p2pfl.audit.audit import Audit, Effort, audit

__all__ = ["Audit", "Effort", "audit"]
