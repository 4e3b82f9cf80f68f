"""Data sets, their splits across peers, and reproducible batches."""

from p2pfl.data.batches import batches, check_batch
from p2pfl.data.dataset import Dataset, IntArray
from p2pfl.data.federation import Federation, check_positions, describe, nothing
from p2pfl.data.loader import SOURCES, federate, gather
from p2pfl.data.orders import Orders, orders
from p2pfl.data.splits import SPLITS
from p2pfl.data.tables import Table

__all__ = [
    "SOURCES",
    "SPLITS",
    "Dataset",
    "Federation",
    "IntArray",
    "Orders",
    "Table",
    "batches",
    "check_batch",
    "check_positions",
    "describe",
    "federate",
    "gather",
    "nothing",
    "orders",
]
