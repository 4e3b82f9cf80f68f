"""What a run leaves behind: records, checkpoints, a summary, pictures."""

from p2pfl.report.records import Record
from p2pfl.report.run import Run

__all__ = ["Record", "Run"]
