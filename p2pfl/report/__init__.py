"""What a run leaves behind: records, checkpoints, a summary, pictures."""

from p2pfl.report.run import Record, Run

__all__ = ["Record", "Run"]
