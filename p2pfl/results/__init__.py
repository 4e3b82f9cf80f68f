"""Results of a run: records, checkpoints, summary and plots."""

from p2pfl.results.records import Record
from p2pfl.results.run import Run

__all__ = ["Record", "Run"]
