"""Experiment files of small runs on the data set of wines."""

FILE = """
name = "{name}"
rounds = {rounds}
[topology]
kind = "complete"
peers = {peers}
[data]
name = "wine"
[model]
name = "linear"
[learning]
device = "cpu"
"""


def wine_file(name, *, rounds=2, peers=3, more=""):
    """Return the text of an experiment file; ``more`` are further sections."""
    return FILE.format(name=name, rounds=rounds, peers=peers) + more
