"""The experiment file: one validated schema that builds what learns.

Names are imported when they are first used: reading an experiment does not need torch.
"""

from typing import TYPE_CHECKING

from p2pfl.core.lazily import lazily

if TYPE_CHECKING:
    from p2pfl.experiment.file.reading import check, find, flat, plain, read, write
    from p2pfl.experiment.resolved import Plan
    from p2pfl.experiment.resolving import plan
    from p2pfl.experiment.schema import Experiment

__all__ = ["Experiment", "Plan", "check", "find", "flat", "plain", "plan", "read", "write"]

if not TYPE_CHECKING:  # mypy would take any name from a module with __getattr__
    __getattr__ = lazily(
        __name__,
        dict.fromkeys(["check", "find", "flat", "plain", "read", "write"], "file.reading")
        | {"Experiment": "schema", "Plan": "resolved", "plan": "resolving"},
    )
