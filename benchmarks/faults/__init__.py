"""What live peers survive: real processes, a real mosquitto, real namespaces; ``python -m benchmarks.faults NAME``."""

from benchmarks.faults.mortal import Mortal

__all__ = ["Mortal"]
