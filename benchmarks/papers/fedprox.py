"""Li et al.: Federated optimization in heterogeneous networks (MLSys 2020).

Synthetic(alpha, beta) of 30 devices and its IID variant; multinomial logistic regression with weight decay .001,
batches of 10, rate .01, 20 epochs, 10 devices a round, 200 rounds. Each round a share of the devices does 1 to 20
epochs at random: FedAvg drops what they did, FedProx keeps it. The paper prints curves (Figures 1 and 2) and one
number: with 90 % of stragglers FedProx gains 22 % of absolute test accuracy, on average over five heterogeneous data
sets, of which Synthetic(1, 1) is one. Its data have no seed, so ours are others of the same recipe, of one seed, and
what is compared is the order of training losses, as in the figures.

    python -m benchmarks.papers.fedprox PICTURE

draws all curves, which as many processes compute as there are cores.
"""

import statistics
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from benchmarks.papers import Line
from p2pfl.algorithms import State
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.core.process import cores, set_threads
from p2pfl.experiment import plan, read
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.plots import blank, keep
from p2pfl.simulation import Faults
from p2pfl.simulation.playing import play_rounds

ROUNDS, EVERY, LATE = 200, 2, 50
"""Rounds, how often the model is scored, and how many of the last rounds count."""

TABLE: dict[str, Any] = {
    "name": "fedprox",
    "rounds": ROUNDS,
    "topology": {"kind": "complete", "peers": 30},
    "data": {"name": "synthetic"},
    "model": {"name": "linear"},
    "gossip": {"steps": 1},
    "learning": {"rate": 0.01, "batch": 10, "epochs": 20, "fraction": 1 / 3, "options": {"weight_decay": 0.001}},
}
SETS: dict[str, dict[str, Any]] = {
    "IID": {"iid": True},
    "(0, 0)": {"alpha": 0.0, "beta": 0.0},
    "(.5, .5)": {"alpha": 0.5, "beta": 0.5},
    "(1, 1)": {"alpha": 1.0, "beta": 1.0},
}
ARMS: dict[str, dict[str, Any]] = {
    "FedAvg": {"algorithm": "fedavg"},
    "FedProx, mu = 0": {"algorithm": "fedprox", "algorithm_options": {"mu": 0.0}},
    "FedProx, mu = 1": {"algorithm": "fedprox", "algorithm_options": {"mu": 1.0}},
}
SHARES = (0.0, 0.5, 0.9)


Curve = list[tuple[int, float, float]]
"""Round, loss over all training data and test accuracy over all devices, of the common model."""


@cache
def curves() -> dict[tuple[str, float, str], Curve]:
    """Return all curves, computed by as many processes as there are cores."""
    asked = [key for key in product(SETS, SHARES, ARMS) if key[1:] != (0.0, "FedAvg")]
    with ProcessPoolExecutor(cores(), mp_context=get_context("spawn"), initializer=set_threads, initargs=(1,)) as pool:
        return dict(zip(asked, pool.map(computed, *zip(*asked, strict=True)), strict=True))


def curve(name: str, share: float, arm: str) -> Curve:
    """Return one of the curves; without stragglers FedAvg drops nothing, and is FedProx with mu = 0."""
    return curves()[name, share, arm if share else arm.replace("FedAvg", "FedProx, mu = 0")]


def computed(name: str, share: float, arm: str) -> Curve:
    """Train with one algorithm."""
    learning = TABLE["learning"] | ARMS[arm] | {"device": "cpu"}
    learning["stragglers"] = {"share": share, "drop": arm == "FedAvg"}
    resolved = plan(read(TABLE | {"data": {"name": "synthetic", "options": SETS[name]}, "learning": learning}))
    peers, learner = resolved.topology.peers, resolved.learner
    held = {part: [len(getattr(resolved.federation, part)[peer]) for peer in peers] for part in ("train", "test")}
    points: list[tuple[int, float, float]] = []

    async def observe(round: int, state: State, _: object, __: object) -> None:
        if (round + 1) % EVERY:
            return
        loss = learner.evaluate(state.rows, peers=peers, part="train")["loss"].tolist()
        right = learner.evaluate(state.rows, peers=peers, part="test")["accuracy"].tolist()
        points.append((round + 1, mean(loss, held["train"]), mean(right, held["test"])))

    run_without_loop(
        play_rounds(resolved, source=SeededSource(0), rounds=range(ROUNDS), faults=Faults(), observe=observe)
    )
    return points


def mean(values: list[float], weights: list[int]) -> float:
    """Weighted mean."""
    return statistics.fmean(values, weights)


def last(name: str, share: float, arm: str) -> tuple[float, float]:
    """Loss and test accuracy, means over the last rounds: single ones swing."""
    late = [point for point in curve(name, share, arm) if point[0] > ROUNDS - LATE]
    return statistics.fmean(loss for _, loss, _ in late), statistics.fmean(right for _, _, right in late)


def compared(what: str, name: str, share: float, arms: tuple[str, str], *, lower: bool) -> Line:
    """Whether the second arm has the lower loss, or the first; what accuracy says beside."""
    (first, hits), (second, more) = (last(name, share, arm) for arm in arms)
    met = second < first if lower else second > first
    agrees = more > hits if lower else more < hits
    order = "as published" if agrees else "not as published either"
    why = "" if met else f"by {abs(second / first - 1):.0%}, order by accuracy {order}"
    expected = f"second {'lower' if lower else 'higher'}"
    return Line(f"{name}, {share:.0%} stragglers: loss, {what}", expected, f"{first:.3f}, {second:.3f}", met, why)


def kept(name: str, share: float) -> Line:
    """What stragglers did is kept, which is better than dropping it."""
    return compared("work dropped, kept", name, share, ("FedAvg", "FedProx, mu = 0"), lower=True)


def leash(name: str, share: float) -> Line:
    """The proximal term: a little worse on IID data, better elsewhere."""
    return compared("mu = 0, mu = 1", name, share, ("FedProx, mu = 0", "FedProx, mu = 1"), lower=name != "IID")


def over_sets(make: Callable[[str, float], Line], share: float) -> Line:
    """All data sets in one line, which is met where each is."""
    each = {name: make(name, share) for name in SETS}
    published, measured = (
        "; ".join(getattr(line, side) for line in each.values()) for side in ("published", "measured")
    )
    why = "; ".join(f"{name} {line.why}" for name, line in each.items() if line.why)
    what = each["IID"].what.replace("IID, ", "", 1)
    return Line(f"{what}, on {', '.join(SETS)}", published, measured, all(line.met for line in each.values()), why)


def lines() -> list[Line]:
    """The order of the curves, and the gain at 90 % of stragglers."""
    found = [over_sets(leash, share) for share in SHARES]
    found += [over_sets(kept, share) for share in SHARES[1:]]
    gains = [100 * (last(name, 0.9, "FedProx, mu = 1")[1] - last(name, 0.9, "FedAvg")[1]) for name in list(SETS)[1:]]
    what = "gain in test accuracy with 90 % stragglers, mu = 1 over FedAvg, synthetic sets that are not IID"
    each = ", ".join(f"{gain:.1f}" for gain in gains)
    measured = f"{statistics.fmean(gains):.1f} points ({each})"
    return [*found, Line(what, "22 points, over five other sets", measured, met=min(gains) > 0)]


def picture(path: str | Path) -> None:
    """Loss over rounds, a column for each data set and a row for each share of stragglers, as in the paper."""
    figure = blank(width=13, height=8)
    axes = figure.subplots(len(SHARES), len(SETS), sharex=True, sharey="col")
    for row, share in zip(axes, SHARES, strict=True):
        for axis, name in zip(row, SETS, strict=True):
            for arm in ARMS:
                rounds, losses, _ = zip(*curve(name, share, arm), strict=True)
                axis.plot(rounds, losses, label=arm, linewidth=1)
            if share == 0:
                axis.set_title(f"Synthetic {name}")
            if name == "IID":
                axis.set_ylabel(f"{share:.0%} stragglers\ntraining loss")
    axes[0, 0].legend()
    for axis in axes[-1]:
        axis.set_xlabel("round")
    keep(figure, path)


if __name__ == "__main__":
    for line in lines():
        print(" | ".join((line.what, line.published, line.measured, str(line.met))), flush=True)
    picture(sys.argv[1])
