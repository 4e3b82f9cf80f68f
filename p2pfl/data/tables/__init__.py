"""Tables: read from CSV and Parquet files and data frames, checked against a declaration, encoded as features."""

from p2pfl.data.tables.cells import TextCells, read
from p2pfl.data.tables.declaration import Table
from p2pfl.data.tables.proposal import propose

__all__ = ["Table", "TextCells", "propose", "read"]
