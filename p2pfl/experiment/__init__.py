"""The experiment file: one validated schema that builds what learns."""

from p2pfl.experiment.plan import Plan
from p2pfl.experiment.reading import check, find, flat, plain, read, write
from p2pfl.experiment.resolving import plan
from p2pfl.experiment.schema import Experiment

__all__ = ["Experiment", "Plan", "check", "find", "flat", "plain", "plan", "read", "write"]
