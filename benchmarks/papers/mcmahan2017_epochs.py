"""McMahan et al. (AISTATS 2017), Table 4: the 2NN on non-IID data, with more local epochs.

As :mod:`benchmarks.papers.mcmahan2017`. A round of twenty epochs takes twenty times as long as one, so these cells are
run by themselves.
"""

from benchmarks.papers import Line
from benchmarks.papers.mcmahan2017 import SHARDS, bounded, rounds

PUBLISHED = {10: 497, 20: 738}
"""Rounds by epochs."""


def lines() -> list[Line]:
    """Rounds of the 2NN to 97 % where peers differ, in batches of ten."""
    found = []
    for epochs, published in PUBLISHED.items():
        ours = rounds(*SHARDS, "learning.rate=0.05", f"learning.epochs={epochs}", target=0.97, most=published)
        what = f"2NN, non-IID, E = {epochs}, B = 10, rate .05: rounds to 97 %"
        found.append(bounded(what, published, ours, most=published))
    return found
