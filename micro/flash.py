"""Write the header with which the peer of a board is compiled: python flash.py EXPERIMENT NAME > flash.h.

It refuses, in one sentence, each setting that a board does not have. The header contains the board's private key.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import secrets
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

import p2pfl
from p2pfl.algorithms import DPSGD, FedAvg
from p2pfl.core.errors import ExperimentError, P2PFLError
from p2pfl.experiment import Experiment, Plan, plan, read
from p2pfl.experiment.file.reading import flat
from p2pfl.learning import TorchLearner
from p2pfl.network.protocol.membership.edges import Edges
from p2pfl.network.protocol.wire.bounds import HEAD
from p2pfl.network.protocol.wire.wire_rows import row_bytes
from p2pfl.privacy.keys import Identity, Roster

FREE = ("topology.", "data.", "transport.", "simulation.", "evaluation.", "trust.", "telemetry.", "gossip.tolerance")
"""Beginnings of keys of which a board notices nothing, or only what :func:`flashed` looks at."""

CHOICES: dict[str, tuple[object, ...]] = {
    "learning.algorithm": ("dpsgd", "fedavg"),
    "model.name": ("mlp", "linear"),
    "learning.optimizer": ("sgd",),
    "learning.weighted": (True, False),
}
"""Values that a board has of a key, in place of its default alone."""

ANY = (
    *("name", "seed", "rounds", "model.hidden", "learning.algorithm_options", "learning.rate", "learning.batch"),
    *("learning.epochs", "learning.steps", "learning.device", "gossip.steps", "gossip.weights"),
)
"""Keys of which a board has all values."""

BARRED = ("data.scale", "data.refresh", "transport.pace", "transport.hurry")
"""Keys of a free section that a board has at their default alone."""


def check_settings(experiment: Experiment) -> None:
    """Refuse the settings that a board does not have.

    Raises
    ------
    ExperimentError
        The experiment has one, which the sentence names.
    """
    usual = flat(Experiment())
    for key, value in flat(experiment).items():
        if key in ANY or (key.startswith(FREE) and key not in BARRED):
            continue
        known = CHOICES.get(key, (usual.get(key),))
        if value not in known:
            some = " or ".join(str(each).lower() if isinstance(each, bool) else f'"{each}"' for each in known)
            wanted = some if key in CHOICES else "its default"
            raise ExperimentError(f"a board does not have {key} = {value!r}; set it to {wanted}")


def check_plan(resolved: Plan, name: str) -> tuple[FedAvg | DPSGD, TorchLearner, dict[str, float]]:
    """Return the algorithm, the learner and the neighbours with their weights, in the order in which models are added.

    Raises
    ------
    ExperimentError
        A board cannot play the plan.
    """
    algorithm, learner = resolved.algorithm, resolved.learner.bare
    if name not in resolved.topology.peers:
        raise ExperimentError(
            f'"{name}" is no peer of the experiment; its peers are {", ".join(resolved.topology.peers)}'
        )
    if not isinstance(algorithm, FedAvg | DPSGD) or not isinstance(learner, TorchLearner):
        raise ExperimentError("a board trains perceptrons by D-PSGD or FedAvg; choose one of them")
    if isinstance(algorithm, FedAvg) and (algorithm.average.weighted or algorithm.average.partial):
        raise ExperimentError("a board weights all peers alike; set learning.weighted = false")
    if resolved.experiment.transport.gathering.quorum < 1:
        raise ExperimentError("a board waits for all its neighbours; leave out transport.gather.quorum")
    if resolved.topology.period != 1 or resolved.topology.at(0).directed or not resolved.weights[0].symmetric:
        raise ExperimentError("a board has one list of neighbours, which weight it alike; choose an undirected graph")
    edges = Edges(name, resolved.topology, resolved.weights)
    order = sorted((edges.turns[0][peer], peer) for peer in edges.row(0) if peer != name)
    chunk, needed = resolved.experiment.transport.chunk, row_bytes(learner.layout.size, learner.dtype) + HEAD
    if chunk < needed:
        raise ExperimentError(f"a board reads a model in one message; set transport.chunk to {needed} at least")
    return algorithm, learner, {peer: edges.row(0)[peer] for _, peer in order}


def numbers(values: np.ndarray[Any, Any]) -> str:
    """Return an initialiser of C, with floats to the bit."""
    flat_values = values.reshape(-1).tolist()
    return ", ".join(f"{value.hex()}f" if isinstance(value, float) else str(value) for value in flat_values)


def octets(data: bytes) -> str:
    """Return an initialiser of C."""
    return ", ".join(map(str, data))


def flashed(experiment: Experiment, name: str, identity: bytes | None = None) -> str:
    """Return the header of one peer of an experiment.

    Parameters
    ----------
    experiment, name
        The experiment, and which of its peers the board is.
    identity
        Private key of the board, 32 bytes; a new one by default.

    Raises
    ------
    ExperimentError
        The board cannot play it.
    """
    check_settings(experiment)
    parts = board_parts(plan(experiment, only=[name]), name)
    identity = _board_identity(parts, identity)
    lines = [
        "/* Written by flash.py; it contains a private key. */",
        "#ifndef MICRO_DATA_NOW",
        *_limits(parts),
        "#else",
    ]
    lines += [*_arrays(parts, identity), *_config(parts), "#endif", ""]
    return "\n".join(lines)


@dataclass(frozen=True)
class BoardParts:
    """Facts that a board needs.

    Attributes
    ----------
    resolved, name
        The plan, and which of its peers the board is.
    algorithm, learner
        Algorithm and learner of the plan.
    own
        Key of the board in the roster, if there is one.
    weights, pinned
        By neighbour, in the order in which models are added: its weight, and its key in the roster.
    digest
        Digest of the roster; empty without one.
    features, targets
        Training samples, ``[S, *shape]`` and ``[S]``.
    widths
        Units of the inputs, the hidden layers and the outputs.
    """

    resolved: Plan
    name: str
    algorithm: FedAvg | DPSGD
    learner: TorchLearner
    weights: dict[str, float]
    own: bytes | None
    pinned: dict[str, bytes | None]
    digest: str
    features: np.ndarray[Any, Any]
    targets: np.ndarray[Any, Any]
    widths: list[int]

    @property
    def facts(self) -> bytes:
        """Settings that neighbours must agree on, as announcements contain them."""
        return msgspec.msgpack.encode({**self.resolved.facts, "roster": self.digest})


def board_parts(resolved: Plan, name: str) -> BoardParts:
    """Return what a board needs to know of a plan.

    Raises
    ------
    ExperimentError
        A board cannot play the plan.
    """
    experiment = resolved.experiment
    algorithm, learner, weights = check_plan(resolved, name)
    part = resolved.federation.train[name]
    features = learner.features[part].numpy().astype(np.float32)  # [S, *shape]
    targets = learner.targets[part].numpy().astype(np.uint16)  # [S]
    hidden = experiment.model.hidden if experiment.model.name == "mlp" else ()
    widths = [math.prod(features.shape[1:]), *hidden, resolved.federation.dataset.classes or 0]
    if not 0 < len(part) < 2**16 or not widths[-1]:
        raise ExperimentError("a board learns classes, from 1 to 65535 samples; give it such data")
    if not all(text.isascii() for pair in resolved.facts.items() for text in pair):
        raise ExperimentError("a board reads ASCII alone; rename what has other letters in the experiment")
    roster = None if experiment.trust.roster is None else Roster.read(experiment.trust.roster)
    keys: dict[str, bytes | None] = dict.fromkeys((name, *weights))
    if roster is not None:
        keys = {peer: _listed_key(roster, peer) for peer in keys}
    digest = "" if roster is None else roster.digest
    own = keys.pop(name)
    return BoardParts(resolved, name, algorithm, learner, weights, own, keys, digest, features, targets, widths)


def _listed_key(roster: Roster, peer: str) -> bytes:
    """Return the key of a peer, which must be in the roster and not revoked."""
    key = roster.peers.get(peer)
    if key is None:
        raise ExperimentError(f'the roster does not contain "{peer}"; add its key')
    if key in roster.revoked:
        raise ExperimentError(
            f'the roster revokes the key of "{peer}"; give it a new identity and put that into the roster'
        )
    return key


def _board_identity(parts: BoardParts, identity: bytes | None) -> bytes:
    """Return the private key of the board: that of the roster, or any without one."""
    if parts.own is not None and (identity is None or Identity(identity).public != parts.own):
        given = "no private key is given" if identity is None else "the private key is another"
        raise ExperimentError(
            f'the roster has a key of "{parts.name}", and {given}; name the file of its private key by --identity'
        )
    return secrets.token_bytes(32) if identity is None else identity


def _limits(parts: BoardParts) -> Iterator[str]:
    """Yield the sizes of arrays."""
    yield f'#define MICRO_PREFIX "{parts.resolved.experiment.transport.prefix}"'
    yield f"#define MICRO_PARAMETERS {parts.learner.layout.size}"
    yield f"#define MICRO_NEIGHBOURS {len(parts.weights)}"
    yield f"#define MICRO_SAMPLES {len(parts.targets)}"
    yield f"#define MICRO_UNITS {sum(parts.widths)}"
    yield f"#define MICRO_LAYERS {len(parts.widths)}"
    yield f"#define MICRO_FACTS {len(parts.facts)}"


def _arrays(parts: BoardParts, identity: bytes) -> Iterator[str]:
    """Yield the arrays that stay in flash."""
    start = parts.learner.start((parts.name,)).numpy().astype(np.float32)  # [1, P]
    yield f"static const float START[] = {{{numbers(start)}}};"
    yield f"static const float FEATURES[] = {{{numbers(parts.features)}}};"
    yield f"static const uint16_t TARGETS[] = {{{numbers(parts.targets)}}};"
    yield f"static const uint8_t IDENTITY[] = {{{octets(identity)}}};"
    yield f"static const uint8_t FACTS[] = {{{octets(parts.facts)}}};"
    for number, key in enumerate(parts.pinned.values()):
        if key is not None:
            yield f"static const uint8_t KEY_{number}[] = {{{octets(key)}}};"


def _config(parts: BoardParts) -> Iterator[str]:
    """Yield the parameters."""
    experiment, learner, algorithm = parts.resolved.experiment, parts.learner, parts.algorithm
    samples, transport, swarm = len(parts.targets), experiment.transport, experiment.name
    batch = min(learner.batch or samples, samples)  # of the learner, whose steps an algorithm may set
    steps = learner.epochs * math.ceil(samples / batch) if learner.steps is None else learner.steps
    first = isinstance(algorithm, FedAvg) or algorithm.order == "adapt_then_combine"
    yield "static const struct micro_config CONFIG = {"
    yield f'    .name = "{parts.name}", .swarm = "{swarm}", .run = "{swarm}{parts.digest}",'
    yield f'    .version = "{p2pfl.__version__}", .identity = IDENTITY, .facts = FACTS, .facts_size = sizeof FACTS,'
    yield "    .neighbours = {"
    for number, (peer, weight) in enumerate(parts.weights.items()):
        key = "NULL" if parts.pinned[peer] is None else f"KEY_{number}"
        yield f'        {{.name = "{peer}", .key = {key}, .weight = {float(np.float32(weight)).hex()}f}},'
    yield "    },"
    yield f"    .rounds = {experiment.rounds}, .gossip_steps = {parts.resolved.gossip.steps},"
    yield f"    .adapt_first = {int(first)}, .samples = {samples}, .batch = {batch}, .local_steps = {steps},"
    yield f"    .patience = {_seconds(transport.patience)}, .gather = {_seconds(transport.gathering.seconds)},"
    yield f"    .batch_key = UINT64_C({batch_key(experiment.seed, parts.name):#x}),"
    yield f"    .rate = {float(np.float32(experiment.learning.rate)).hex()}f,"
    yield f"    .widths = {{{', '.join(map(str, parts.widths))}}},"
    yield "    .start = START, .features = FEATURES, .targets = TARGETS,"
    yield "};"


def _seconds(wait: float) -> int:
    """Return seconds that fit into 32 bits in milliseconds."""
    return int(min(max(math.ceil(wait), 1), 1_000_000)) if math.isfinite(wait) else 1_000_000


def batch_key(seed: int, name: str) -> int:
    """Return the key from which the batches of a peer follow, as in :func:`p2pfl.core.draws.keys`."""
    return int.from_bytes(hashlib.sha256(f"{seed}\x1fbatches\x1f{name}".encode()).digest()[:8], "little")


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the header to standard output."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("experiment", help="an experiment file, or the name of a shipped one")
    parser.add_argument("name", help="which of its peers the board is")
    parser.add_argument("--identity", help="file of the board's private key, of p2pfl identity; by default a new key")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key")
    asked = parser.parse_args(arguments)
    try:
        private = None if asked.identity is None else private_bytes(asked.identity)
        sys.stdout.write(flashed(read(asked.experiment, changes=asked.set), asked.name, private))
    except P2PFLError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


def private_bytes(path: str) -> bytes:
    """Return the private key in a file of ``p2pfl identity``."""
    return Identity.load(path)._private.private_bytes_raw()  # noqa: SLF001 (only a board is given it)


if __name__ == "__main__":
    sys.exit(main())
