"""Schalk: Federated learning, logistic regression on four sites (slides and program, 2018).

Two features, no intercept, 4,000 samples on four sites; E full-batch gradient steps at each site, then the mean
weighted by samples, until the mean moves by less than 1e-7 or 100,000 steps are taken. What is printed on the slides is
the number of steps, so every one of them must come out as an integer. Setting 1 has sites alike, in setting 2
the second feature of one site is shifted. Data: logistic_2018/settings_1_2.npz, made by the authors' program.

Source: github.com/schalkdaniel/talk_federated_learning, figures.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import nn

from benchmarks.papers import Line
from p2pfl import topology as graphs
from p2pfl.algorithms import Averaging, FedAvg, Gossip, StopCondition, learn, start
from p2pfl.core.errors import DataError
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.data import Dataset, Federation
from p2pfl.experiment.accounts import data_folder
from p2pfl.learning import TorchLearner
from p2pfl.simulation import StackedNeighbourhood
from p2pfl.simulation.inline import Inline

CHANGE, MOST = 1e-7, 100_000
"""Stop when the mean moves by less; or after so many steps."""

STEPS = (1, 10, 100, 1000, 2000)
RATES = (0.001, 0.01, 0.05, 0.1)
PUBLISHED = {
    1: (
        (51795, 6882, 1611, 855),
        (68860, 8600, 1960, 1030),
        (86000, 10400, 2400, 1300),
        (100000, 13000, 4000, 3000),
        (100000, 14000, 6000, 4000),
    ),
    2: (
        (41608, 5522, 1291, 684),
        (55260, 6900, 1590, 850),
        (69100, 8500, 2100, 1200),
        (86000, 12000, 4000, 3000),
        (94000, 14000, 6000, 4000),
    ),
}
"""Steps taken, by setting, E and rate."""

OTHER_START = {(1, 10): 8640, (1, 1000): 13000, (2, 10): 6990, (2, 1000): 12000}
"""From (.25, .25) at rate .01, by setting and E."""

POOLED = {1: (-0.8193761, -0.239695), 2: (-0.768286, -0.0513262)}
"""Maximum likelihood on all data, which E = 1 finds."""


def logistic(beta: Sequence[float]) -> nn.Module:
    """Logits (-x beta / 2, x beta / 2), whose cross-entropy is the logistic likelihood of beta.

    A sequence of linear layers is trained at once for all sites. The two rows of the weights stay opposite; beta,
    their difference, moves twice as fast as either and sqrt(2) times as far as the two together.
    """
    model = nn.Sequential(nn.Linear(2, 2, bias=False)).double()
    half = torch.tensor(beta, dtype=torch.float64) / 2  # [2]
    model.load_state_dict({"0.weight": torch.stack([-half, half])})
    return model


@cache
def data() -> dict[str, Any]:
    """The arrays of the fixture."""
    folder = data_folder()
    file = folder / "logistic_2018" / "settings_1_2.npz" if folder else None
    if file is None or not file.is_file():
        raise DataError(f"expected logistic_2018/settings_1_2.npz in the data folder, got {folder}: set P2PFL_DATA")
    with np.load(file) as arrays:
        return dict(arrays)


def federation(setting: int) -> Federation:
    """The four sites of a setting."""
    arrays = data()
    parts = {f"site{i}": np.flatnonzero(arrays[f"site{setting}"] == i) for i in range(1, 5)}
    features = torch.from_numpy(arrays[f"X{setting}"])  # [n, 2] float64
    return Federation(Dataset(features, torch.from_numpy(arrays["y"]).long(), 2), parts, parts, parts)


def trained(setting: int, *, steps: int, rate: float, beta: Sequence[float] | None = None) -> tuple[int, torch.Tensor]:
    """How many steps FedAvg took until it stopped, and where that was, ``[2]``."""
    held = federation(setting)
    learner = TorchLearner(
        logistic(data()[f"init{setting}"] if beta is None else beta),
        held,
        seed=0,
        rate=rate / 2,
        batch=None,
        steps=steps,
        device="cpu",
        dtype=torch.float64,
    )
    graph = graphs.complete(4).named(held.peers)
    weights = [graphs.metropolis(graph)]
    mean = float(held.samples(held.peers).double().mean())
    everybody, taken = torch.ones(4, dtype=torch.bool), 0

    async def count(round: int, *_: object) -> None:
        nonlocal taken
        taken = (round + 1) * steps

    state = run_without_loop(
        learn(
            FedAvg(Averaging(graph.peers, 0, Gossip(1), mean_samples=mean)),
            Inline(learner, present=lambda _: everybody, clock=lambda: 0.0),
            start(learner, graph.peers),
            rounds=range(MOST // steps),
            neighbourhood=lambda round: StackedNeighbourhood(weights, round=round, seed=0),
            private=lambda net, _: net,
            observe=count,
            stop=StopCondition(CHANGE / math.sqrt(2), 1),
        )
    )
    opposite, half = state.rows[0].view(2, 2)  # [2] each
    return taken, half - opposite


def lines(*, rates: Sequence[float] = RATES) -> list[Line]:
    """Every step count of settings 1 and 2, and the pooled maximum."""
    found = []
    for setting, table in PUBLISHED.items():
        for steps, row in zip(STEPS, table, strict=True):
            wanted = [count for count, rate in zip(row, RATES, strict=True) if rate in rates]
            ours = [trained(setting, steps=steps, rate=rate)[0] for rate in rates]
            what = f"setting {setting}, E = {steps}: steps at rates {rates[0]:g} to {rates[-1]:g}"
            found.append(Line(what, _listed(wanted), _listed(ours), ours == wanted))
        if 0.01 in rates:
            wanted = [count for (here, _), count in OTHER_START.items() if here == setting]
            ours = [trained(setting, steps=steps, rate=0.01, beta=(0.25, 0.25))[0] for steps in (10, 1000)]
            what = f"setting {setting}, from (.25, .25) at rate .01: steps for E = 10, 1000"
            found.append(Line(what, _listed(wanted), _listed(ours), ours == wanted))
        _, beta = trained(setting, steps=1, rate=max(rates))
        close = bool(((beta - torch.tensor(POOLED[setting], dtype=torch.float64)).abs() < 1e-4).all())
        what = f"setting {setting}, E = 1: coefficients, pooled maximum likelihood to 4 digits"
        found.append(Line(what, _vector(POOLED[setting]), _vector(beta.tolist()), close))
    return found


def _listed(counts: Sequence[int]) -> str:
    return ", ".join(map(str, counts))


def _vector(values: Sequence[float]) -> str:
    return f"({', '.join(f'{value:.5f}' for value in values)})"
