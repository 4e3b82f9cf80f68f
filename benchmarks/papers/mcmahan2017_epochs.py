"""McMahan et al. (AISTATS 2017), Table 4: the 2NN where peers differ, with more local epochs.

As :mod:`benchmarks.papers.mcmahan2017`. A round of ten epochs takes ten times as long as one, so these cells are run by
themselves.
"""

from benchmarks.papers import Line
from benchmarks.papers.mcmahan2017 import SHARDS, bounded, rounds


def lines() -> list[Line]:
    """Rounds of the 2NN to 97 % where peers differ: ten and twenty epochs of batches of ten."""
    return [
        bounded(
            f"2NN, non-IID, E = {epochs}, B = 10, rate .05: rounds to 97 %",
            published,
            rounds(*SHARDS, "learning.rate=0.05", f"learning.epochs={epochs}", target=0.97, most=published),
            most=published,
        )
        for epochs, published in ((10, 497), (20, 738))
    ]
