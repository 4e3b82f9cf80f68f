"""Results of a run: records, checkpoints, summary and plots."""

from p2pfl.report.records import Record
from p2pfl.report.run import Run

__all__ = ["Record", "Run"]
