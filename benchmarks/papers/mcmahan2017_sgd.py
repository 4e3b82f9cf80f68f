"""McMahan et al. (AISTATS 2017), Table 4: FedSGD and the 2NN on non-IID data.

As :mod:`benchmarks.papers.mcmahan2017`. A round is one step on all data of a tenth of the peers: many rounds, of
little work each.
"""

from benchmarks.papers import Line
from benchmarks.papers.mcmahan2017 import SHARDS, bounded, rounds


def lines() -> list[Line]:
    """Rounds of the 2NN to 97 %."""
    whole = rounds(*SHARDS, "learning.batch=all", "learning.rate=0.3", target=0.97, most=1817)
    return [bounded("2NN, non-IID, FedSGD (E = 1, B = all), rate .3: rounds to 97 %", 1817, whole, most=1817)]
