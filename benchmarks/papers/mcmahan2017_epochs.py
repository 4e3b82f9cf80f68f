"""McMahan et al. (AISTATS 2017), Table 4: the 2NN where peers differ, with more local epochs.

As :mod:`benchmarks.papers.mcmahan2017`. A round of ten epochs takes ten times as long as one, so these cells are run by
themselves.
"""

from benchmarks.papers import Line
from benchmarks.papers.mcmahan2017 import SHARDS, bounded, rounds


def lines() -> list[Line]:
    """Rounds of the 2NN to 97 % where peers differ: ten epochs of batches of ten."""
    parted = rounds(*SHARDS, "learning.rate=0.05", "learning.epochs=10", target=0.97, most=497)
    return [
        bounded("2NN, non-IID, E = 10, B = 10, rate .05: rounds to 97 %", 497, parted, most=497),
        Line("2NN, non-IID, E = 20, B = 10: rounds to 97 %", "738", "not run", None, "two hours of one core"),
    ]
