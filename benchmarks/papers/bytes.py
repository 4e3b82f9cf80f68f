"""Accuracy against bytes sent, for each way to send fewer bytes.

64 peers on a random graph of degree 4, MNIST in two shards of the data sorted by label for each (most peers know two
digits), softmax regression with one hidden layer of 32, 10 local steps of 16 samples a round. FedAvg by gossip to a
tolerance of 0.1, D-PSGD (adapt, then combine) and Epidemic Learning (EL-Oracle: another random graph of degree 4 each
round) with one exchange a round, all of whole rows; CHOCO-SGD (Koloskova et al., ICML 2019) under three codecs,
FedAvg in 8 bits, and partial sharing (Dhasade et al., EuroMLSys 2023) of a tenth.

Bytes are those of the numbers of a row, as a live peer would send them, mean of all peers. One seed; the mean of all
peers' accuracies on 1,050 images. Published are claims, not tables: that compressed gossip learns as much from far
fewer bytes, and that random graphs mix better at equal cost. Where peers differ as much as here, codecs
that need small steps of consensus (QSGD, sparse ones), and partial sharing, fall behind, at equal bytes too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.papers import Line
from p2pfl.algorithms import State
from p2pfl.core.neighbourhood import run_without_loop
from p2pfl.experiment import plan, read
from p2pfl.experiment.accounts import data_folder
from p2pfl.privacy.keys import SeededSource
from p2pfl.results.plots import blank, keep
from p2pfl.simulation import Faults, StackedNeighbourhood
from p2pfl.simulation.playing import play_rounds

PEERS, DEGREE = 64, 4
EVERY = 4
"""Rounds after which all peers are scored."""

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "bytes.png"
TABLE: dict[str, Any] = {
    "name": "bytes",
    "seed": 1,
    "topology": {"kind": "random_regular", "peers": PEERS, "degree": DEGREE},
    "data": {"name": "mnist", "split": "shards", "split_options": {"shards": 2}, "test": 0.015},
    "model": {"name": "mlp", "hidden": [32]},
    "learning": {"algorithm": "fedavg", "weighted": False, "steps": 10, "rate": 0.1, "batch": 16, "device": "cpu"},
}
CHOCO = ["learning.algorithm=choco"]
DPSGD = ["learning.algorithm=dpsgd", 'learning.algorithm_options={order="adapt_then_combine"}']
WAYS: dict[str, tuple[int, list[str]]] = {
    "D-PSGD": (40, DPSGD),
    "CHOCO-SGD, 4 bits": (40, [*CHOCO, "compression.name=quantise", "compression.options.bits=4"]),
    "CHOCO-SGD, QSGD in 8 bits": (40, [*CHOCO, "compression.name=qsgd"]),
    "CHOCO-SGD, largest 10 %": (40, [*CHOCO, "compression.name=top_k", "compression.options.share=0.1"]),
    "Epidemic Learning": (40, [*DPSGD, "topology.kind=epidemic_oracle"]),
    "partial sharing of 10 %": (
        40,
        ["learning.algorithm=partial", "learning.algorithm_options={share=0.1}", "gossip.steps=1"],
    ),
    "FedAvg, to 0.1": (16, ["gossip.tolerance=0.1"]),
    "FedAvg, to 0.1, 8 bits": (16, ["gossip.tolerance=0.1", "compression.name=quantise"]),
}
"""Rounds and settings."""


@dataclass(frozen=True)
class Curve:
    """Megabytes that a peer has sent after some rounds, and the mean accuracy then."""

    megabytes: tuple[float, ...]
    accuracy: tuple[float, ...]

    def to(self, target: float) -> float | None:
        """Megabytes at which the target is first reached."""
        pairs = zip(self.megabytes, self.accuracy, strict=True)
        return next((sent for sent, score in pairs if score >= target), None)


def curve(way: str, *, share: float = 1.0) -> Curve:
    """Run one way, for a share of its rounds."""
    rounds, changes = WAYS[way]
    resolved = plan(read(TABLE, changes=changes))
    names = resolved.topology.peers
    sent = torch.zeros(PEERS, dtype=torch.int64)
    found: list[tuple[float, float]] = []

    async def observe(round: int, state: State, net: StackedNeighbourhood, _: object) -> None:
        sent.add_(net.bytes_out)
        if round % EVERY == EVERY - 1:
            score = resolved.learner.evaluate(state.rows, peers=names)["accuracy"].mean()
            found.append((float(sent.double().mean()) / 1e6, float(score)))

    last = range(max(EVERY, int(share * rounds)))
    run_without_loop(play_rounds(resolved, source=SeededSource(1), rounds=last, faults=Faults(), observe=observe))
    megabytes, accuracy = zip(*found, strict=True)
    return Curve(megabytes, accuracy)


def draw(curves: Mapping[str, Curve], *, path: Path = PICTURE) -> None:
    """The picture."""
    picture = blank(width=9, height=5.5)
    axes = picture.subplots()
    for number, (way, found) in enumerate(curves.items()):
        axes.plot(found.megabytes, found.accuracy, color=f"C{number}", linewidth=2, marker="o", markersize=3, label=way)
    axes.set_xscale("log")
    axes.set_xlabel("MB sent by a peer")
    axes.set_ylabel("accuracy, mean of 64 peers")
    axes.grid(visible=True, which="major", color="0.9")
    axes.set_title("MNIST, two shards a peer, random graph of degree 4", loc="left")
    axes.legend(loc="upper left", fontsize="small")
    keep(picture, path)


def compared(curves: Mapping[str, Curve], *, target: float) -> list[Line]:
    """Bytes to a target, against those of whole rows."""
    found = []
    claims = {
        "Epidemic Learning": ("fewer than D-PSGD", 1.0),
        "CHOCO-SGD, 4 bits": ("a seventh of D-PSGD", 1 / 7),
        "FedAvg, to 0.1, 8 bits": ("less than a third of whole models", 1 / 3),
    }
    against = {"FedAvg, to 0.1, 8 bits": "FedAvg, to 0.1"}
    for way, each in curves.items():
        sent, whole = each.to(target), curves[against.get(way, "D-PSGD")].to(target)
        what = f"{way}: MB to {target:.0%}; accuracy"
        claim, most = claims.get(way, ("-", 0.0))
        met = None if claim == "-" else sent is not None and whole is not None and sent <= most * whole
        measured = f"{'not reached' if sent is None else f'{sent:.2f}'}; {each.accuracy[-1]:.3f}"
        found.append(Line(what, claim, measured, met))
    return found


def lines(*, share: float = 1.0, target: float = 0.7) -> list[Line]:
    """All ways; the picture is written where all rounds are run."""
    folder = data_folder()
    if folder is None or not (folder / "mnist").is_dir():
        return [Line("accuracy against bytes", "-", "not run", None, "no MNIST: set P2PFL_DATA")]
    curves = dict(zip(WAYS, map(partial(curve, share=share), WAYS), strict=True))
    if share == 1.0:
        draw(curves)
    return compared(curves, target=target)
