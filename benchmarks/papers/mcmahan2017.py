"""McMahan et al.: Communication-efficient learning of deep networks from decentralized data (AISTATS 2017).

MNIST on 100 peers of 600 samples each, a tenth of which take part in a round; IID, or two shards of the data sorted by
label for each peer (non-IID). Rounds of the 2NN (784-200-200-10) to a test accuracy of 97 %, of the curve made
monotone and interpolated, as in the paper. They tuned the rate for every cell on a fine grid and started otherwise;
so ours must not be more, and ratios must be of the same size. Published is Table 1; of Table 4, with more local
epochs, see :mod:`benchmarks.papers.mcmahan2017_epochs`.

On the complete graph all peers hold the same row after a round, and those who do not take part weigh nothing: only the
rows of those who do are computed. One row is scored, of one seed.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from benchmarks.papers import Line
from p2pfl import topology as graphs
from p2pfl.algorithms import FedAvg, State, learn
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.core.rows import Rows
from p2pfl.experiment import Plan, plan, read
from p2pfl.simulation import StackedNeighbourhood
from p2pfl.simulation.inline import Inline

TABLE: dict[str, Any] = {
    "name": "mcmahan2017",
    "rounds": 1,
    "topology": {"kind": "complete", "peers": 100},
    "data": {"name": "mnist"},
    "model": {"name": "mlp", "hidden": [200, 200]},
    "learning": {"fraction": 0.1, "rate": 0.2, "batch": 10, "epochs": 1, "device": "cpu"},
    "gossip": {"steps": 1},
}
SHARDS = ["data.split=shards", "data.split_options.shards=2"]


def models(resolved: Plan, *, most: int) -> Iterator[Rows]:
    """The common model ``[1, P]`` after each round of FedAvg."""
    algorithm, learner = resolved.algorithm, resolved.learner
    if not isinstance(algorithm, FedAvg):
        raise TypeError(f"expected FedAvg, got {algorithm}")
    names = resolved.topology.peers
    row = learner.start(names[:1])  # [1, P]
    for round in range(most):
        active = algorithm.average.participants(names, round=round).tolist()
        chosen = tuple(name for name, takes_part in zip(names, active, strict=True) if takes_part)
        rows = row.repeat(len(chosen), 1)  # [C N, P]
        row = run_without_loop(one_round(resolved, State(rows, Public(rows)), chosen, round=round)).rows[:1]  # [1, P]
        yield row


async def one_round(resolved: Plan, state: State, chosen: tuple[str, ...], *, round: int) -> State:
    """A round of those who take part."""
    weights = [graphs.metropolis(graphs.complete(len(chosen)).named(chosen))]
    everybody = torch.ones(len(chosen), dtype=torch.bool)
    return await learn(
        resolved.algorithm,
        Inline(resolved.learner, present=lambda _: everybody, clock=lambda: 0.0),
        state,
        rounds=range(round, round + 1),
        neighbourhood=lambda round: StackedNeighbourhood(weights, round=round, seed=resolved.experiment.seed),
        private=lambda net, _: net,
        observe=nothing,
    )


async def nothing(*_: object) -> None:
    """Look at no round."""


def accuracies(*changes: str, most: int) -> Iterator[float]:
    """Test accuracy before the first round and after each."""
    resolved = plan(read(TABLE, changes=list(changes)))
    one = resolved.topology.peers[:1]
    yield float(resolved.learner.evaluate(resolved.learner.start(one), peers=one)["accuracy"])
    for row in models(resolved, most=most):
        yield float(resolved.learner.evaluate(row, peers=one)["accuracy"])


def crossing(curve: Iterable[float], *, target: float) -> float | None:
    """After how many rounds the curve, made monotone and interpolated, reaches the target.

    Examples
    --------
    >>> crossing([0.1, 0.5, 0.4, 0.9], target=0.7)
    2.5
    """
    best = 0.0
    for round, score in enumerate(curve):
        if score >= target:
            return round - 1 + (target - best) / (score - best) if round else 0.0
        best = max(best, score)
    return None


def rounds(*changes: str, target: float, most: int) -> float | None:
    """Rounds to the target; ``None`` if it is not reached in ``most``."""
    found = crossing(accuracies(*changes, most=most), target=target)
    print(f"{' '.join(changes)}: {said(found)}", file=sys.stderr, flush=True)  # the next may take minutes
    return found


def bounded(what: str, published: int, ours: float | None, *, most: float) -> Line:
    """A line that is met if ours is at most so much."""
    return Line(what, str(published), said(ours), ours is not None and ours <= most)


def said(ours: float | None) -> str:
    """Rounds as they are printed."""
    return "not reached" if ours is None else f"{ours:.1f}"


def ratio(
    what: str, published: tuple[int, int], ours: tuple[float | None, float | None], low: float, high: float
) -> Line:
    """A line that is met if the ratio of ours lies within bounds."""
    above, below = ours
    wanted = f"{published[0] / published[1]:.1f}"
    if above is None or below is None:
        return Line(what, wanted, "-", met=False)
    return Line(what, wanted, f"{above / below:.1f}", low <= above / below <= high)


def lines() -> list[Line]:
    """Rounds of the 2NN."""
    iid = rounds("learning.rate=0.2", target=0.97, most=87)
    parted = rounds(*SHARDS, "learning.rate=0.1", target=0.97, most=664)
    whole = rounds("learning.batch=all", "learning.rate=0.5", target=0.97, most=1474)
    found = [
        bounded("2NN, IID, E = 1, B = 10, rate .2: rounds to 97 %", 87, iid, most=87),
        bounded("2NN, non-IID, E = 1, B = 10, rate .1: rounds to 97 %", 664, parted, most=664),
        ratio("non-IID against IID, 2NN, E = 1, B = 10: times the rounds (4 to 12)", (664, 87), (parted, iid), 4, 12),
        bounded("2NN, IID, FedSGD (E = 1, B = all), rate .5: rounds to 97 %", 1474, whole, most=1474),
        ratio("FedSGD against E = 1, B = 10, 2NN, IID: times the rounds (8 to 34)", (1474, 87), (whole, iid), 8, 34),
    ]
    for epochs, published in ((10, 34), (20, 32)):
        more = rounds("learning.rate=0.2", f"learning.epochs={epochs}", target=0.97, most=published)
        what = f"2NN, IID, E = {epochs}, B = 10, rate .2: rounds to 97 %"
        found.append(bounded(what, published, more, most=published))
    return found
