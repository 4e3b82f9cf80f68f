"""What privacy costs: DECOR's quadratic task beside its published losses, digits at epsilon 8, and four hospitals.

    python -m benchmarks.privacy [decor] [digits] [hospitals] [--seeds 5] [--plot docs/notes/privacy.png]

The task of DECOR (Allouah et al., ICML 2024, figure 1 and the tables of its repository): 16 peers, peer i with
f_i(x) = |a_i x|^2 / 2, a_i = i / 4, in 10 dimensions, all starting at x = 1; 3,500 steps of size 1.668e-3, gradients
clipped to norm 1, one exchange a step; the loss is the mean of |x_i|^2 at the end. It runs through our own release
and mixing: FedAvg with one step and one exchange a round is their algorithm. Published are single draws of their
tables and the spread of an independent implementation over five seeds.
"""

import argparse
import math
import statistics
from collections.abc import Sequence

import torch

from p2pfl import topology as graphs
from p2pfl.algorithms import Averaging, FedAvg, Gossip, learn, start
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.core.rows import Layout
from p2pfl.experiment import Experiment, plan, read
from p2pfl.learning import Fitted, Report
from p2pfl.privacy import Masks, Settings, private, swarm_secrets
from p2pfl.privacy.keys import SeededSource
from p2pfl.results import Run
from p2pfl.results.plots import blank, keep
from p2pfl.simulation import StackedNeighbourhood, simulate
from p2pfl.simulation.curator import break_even, compare
from p2pfl.simulation.inline import Inline

PEERS, SIZE, STEPS, RATE = 16, 10, 3500, 1.668e-3
PUBLISHED = {
    "curator, complete": (graphs.complete(PEERS), 9.419440343744078, 0.0, ".0064", ".0092 +- .0018"),
    "DECOR, complete": (graphs.complete(PEERS), 9.9, 29.543, ".0085", ".0116 +- .0031"),
    "DECOR, torus": (graphs.torus(4, 4), 11.726242060579363, 32.0, ".0307", ".0515 +- .0103"),
    "DECOR, ring": (graphs.ring(PEERS), 14.033043777414647, 51.0, ".0707", ".0873 +- .0132"),
    "independent, ring": (graphs.ring(PEERS), 37.67776137497631, 0.0, "-", "1.32 +- .24"),
}
"""Graph, noise and mask at epsilon 20 by their conversion (reference numbers of the accountant's tests)."""

HOSPITALS = {
    "nothing hidden": ["privacy.mode=none"],
    "epsilon 60": ["privacy.epsilon=60"],
    "epsilon 30": ["privacy.epsilon=30"],
    "epsilon 15": ["privacy.epsilon=15"],
    "epsilon 8": [],
    "epsilon 8, eight hospitals": ["topology.peers=8"],
    "epsilon 8, all others colluding": ["privacy.mode=independent"],
    "epsilon 8, for each patient": ["privacy.mode=none", "learning.example_noise=4"],
}
"""What changes in the shipped experiment, by what it then promises."""


class Quadratics:
    """A learner that takes one clipped gradient step on |a_i x|^2 / 2."""

    layout = Layout(("x",), ((SIZE,),))
    dtype = torch.float64

    def __init__(self) -> None:
        self.curvature = (torch.arange(1, PEERS + 1, dtype=torch.float64) ** 2 / PEERS).unsqueeze(1)  # [N, 1]

    @property
    def bare(self):
        return self

    def start(self, peers):
        return torch.ones(len(peers), SIZE, dtype=torch.float64)

    def samples(self, peers):
        return torch.ones(len(peers), dtype=torch.int64)

    def fit(self, rows, *, peers, round, memory=None, active=None, correction=None):
        return Fitted(rows - RATE * self.curvature * rows, {}, Report(rows[:, 0], torch.ones(len(peers))))


def quadratic(graph: graphs.Topology, *, noise: float, mask: float, seed: int) -> float:
    """The mean of |x_i|^2 after the last step; what is clipped is the step, so noises are scaled by its size."""
    settings = Settings(clip=RATE, noise=RATE * noise, mask=RATE * mask, bits=40)
    source = SeededSource(seed)
    masks = None
    if mask:
        secrets = swarm_secrets(graph, source=source, run="decor")
        masks = Masks(secrets, deviation=settings.mask, bits=settings.bits, topology=graph)
    weights, learner = [graphs.metropolis(graph)], Quadratics()
    state = run_without_loop(
        learn(
            FedAvg(Averaging(graph.peers, seed, Gossip(1), weighted=False)),
            Inline(learner, present=lambda _: torch.ones(PEERS, dtype=torch.bool), clock=lambda: 0.0),
            start(learner, graph.peers),
            rounds=range(STEPS),
            neighbourhood=lambda round: StackedNeighbourhood(weights, round=round, seed=seed),
            private=lambda net, round: private(net, settings=settings, masks=masks, source=source, round=round),
            observe=nothing,
        )
    )
    return float(state.rows.square().sum(1).mean())


def spread_of(values: Sequence[float], *, places: int = 3) -> str:
    """The mean, and the standard deviation where there are several.

    >>> spread_of([0.5, 0.75])
    '0.625 +- 0.177'
    >>> spread_of([0.5])
    '0.500'
    """
    mean = f"{statistics.mean(values):.{places}f}"
    return mean if len(values) == 1 else f"{mean} +- {statistics.stdev(values):.{places}f}"


async def nothing(*_: object) -> None:
    """Look at no round."""


def decor(seeds: int) -> None:
    """Print our losses beside the published ones."""
    print(f"{'quadratic task, epsilon 20':>28} {'ours':>18} {'their draw':>12} {'independent code':>18}")
    for name, (graph, noise, mask, draw, spread) in PUBLISHED.items():
        losses = [quadratic(graph, noise=noise, mask=mask, seed=seed) for seed in range(seeds)]
        print(f"{name:>28} {spread_of(losses, places=4):>18} {draw:>12} {spread:>18}", flush=True)


def digits(seeds: int, path: str | None) -> None:
    """Accuracy of sixteen peers at epsilon 8 for a peer, by what hides them."""
    kinds = {
        "nothing hidden": ["privacy.mode=none"],
        "trusted curator": ["topology.kind=complete", "privacy.mode=independent"],
        "masks and noise": [],
        "independent noise": ["privacy.mode=independent"],
    }
    curves = {}
    print(f"{'digits, 16 peers, epsilon 8':>28} {'accuracy':>16} {'alone':>8} {'pooled':>8}")
    for name, changes in kinds.items():
        runs = [repeatable(read("private", changes=[*changes, *shared(name, seed)])) for seed in range(seeds)]
        finals = [run.summary["together"] for run in runs]
        alone, pooled = (statistics.mean(run.summary[key] for run in runs) for key in ("alone", "pooled"))
        print(f"{name:>28} {spread_of(finals):>16} {alone:>8.3f} {pooled:>8.3f}", flush=True)
        rounds = runs[0].summary["rounds"]
        curves[name] = [
            statistics.mean(r.scores["accuracy"] for run in runs for r in run.metrics if r.round == round)
            for round in range(rounds)
        ]
    if path is not None:
        picture(curves, alone, path)


def repeatable(experiment: Experiment) -> Run:
    """Simulate with noise that follows from the seed, so that the tables of the documentation can be printed again."""
    return simulate(experiment, source=SeededSource(experiment.seed))


def shared(name: str, seed: int) -> list[str]:
    """A seed, and for the curator the noise that makes its sum that of one trusted server."""
    changes = [f"seed={seed}"]
    if name == "trusted curator":
        plain = read("private", changes=["privacy.mode=independent"])
        noise = plan(plain).protection.settings.noise / math.sqrt(plain.topology.peers)
        changes += [f"privacy.noise={noise}", "privacy.epsilon=1e6"]  # accounted as if each peer stood alone
    return changes


def hospitals(seeds: int) -> None:
    """Print, as a table in Markdown, what four hospitals reach together at each promise.

    Each seed deals the patients out anew. A hospital gains where the common model is better than what it learns alone.
    The last three columns are what ``p2pfl privacy`` says of the seeds: what a curator would reach, of how many that
    learning together can pay, and with how many peers it would begin to pay in the others.
    """
    columns = ["what is promised", "alone", "together", "gain", "hospitals that gain", "curator", "predicts a gain"]
    columns.append("otherwise asks for")
    print(f"| {' | '.join(columns)} |\n|{' --- |' * len(columns)}")
    for name, changes in HOSPITALS.items():
        swarms = [read("hospitals", changes=[*changes, f"seed={seed}"]) for seed in range(seeds)]
        print(f"| {' | '.join([name, *reached(swarms), *forecast(swarms)])} |", flush=True)


def reached(swarms: Sequence[Experiment]) -> list[str]:
    """Scores alone and together, and what learning together gained, over seeds."""
    found = [repeatable(each).summary for each in swarms]
    alone, together = ([each[key] for each in found] for key in ("alone", "together"))
    gains = [after - before for before, after in zip(alone, together, strict=True)]
    everybody = [peer for each in found for peer in each["per_peer"].values()]
    better = sum(peer["together"] > peer["alone"] for peer in everybody)
    return [*map(spread_of, (alone, together, gains)), f"{better} of {len(everybody)}"]


def forecast(swarms: Sequence[Experiment]) -> list[str]:
    """What the command says of each seed before anything runs."""
    plans = [plan(each) for each in swarms]
    if not plans[0].protection.claimed:
        return ["-"] * 3
    found = [compare(each, source=SeededSource(each.experiment.seed)) for each in plans]
    curators = [math.nan if each.curator is None else each.curator for each in found]
    pays = sum(each.pays for each in found)
    asked = [
        break_even(one, each)[0] if each.share else math.inf
        for one, each in zip(plans, found, strict=True)
        if not each.pays
    ]
    peers = f"{min(asked):g} to {max(asked):g} peers" if asked else "-"
    return [spread_of(curators), f"{pays} of {len(found)}", peers]


def picture(curves: dict[str, list[float]], alone: float, path: str) -> None:
    """Accuracy over rounds."""
    figure = blank(width=7, height=4)
    axes = figure.add_subplot()
    for name, values in curves.items():
        axes.plot(range(1, len(values) + 1), values, label=name, linewidth=2)
    axes.axhline(alone, color="0.4", linestyle=":", label="alone")
    axes.set(xlabel="round", ylabel="accuracy", ylim=(0, 1), title="digits, 16 peers, epsilon 8 for a peer's data")
    figure.legend(loc="outside lower center", ncols=3)
    keep(figure, path)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("which", nargs="*", default=["decor", "digits", "hospitals"], help="decor, digits, hospitals")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--plot", metavar="FILE", help="draw accuracy over rounds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if "decor" in options.which:
        decor(options.seeds)
    if "digits" in options.which:
        digits(options.seeds, options.plot)
    if "hospitals" in options.which:
        hospitals(options.seeds)


if __name__ == "__main__":
    main()
