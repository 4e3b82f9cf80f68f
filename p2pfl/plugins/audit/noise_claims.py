"""Claims about all noise and masks: their distribution, and that no two releases share any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from p2pfl.core.neighbourhood import Public, Released, run_without_loop
from p2pfl.core.rows import draw
from p2pfl.plugins.audit import noise_tests
from p2pfl.plugins.audit.claims import ExactClaim
from p2pfl.plugins.audit.noise_tests import Floats, Ints, StatisticalResult
from p2pfl.plugins.audit.pipeline import Fresh, Pipeline
from p2pfl.privacy import Settings
from p2pfl.privacy.keys import ExchangeKey
from p2pfl.privacy.masks import neighbour_secrets
from p2pfl.privacy.normal_stream import BLOCK
from p2pfl.topology import Topology, metropolis, ring

PEERS = 6
"""Number of peers of the tested pipeline."""

ROUNDS = 12
"""Number of rounds of each run, with two releases each."""

SIZE = 4096
"""Length of a release."""

RUNS = 2
"""Number of runs, each with its own keys."""

FIRST = 1000
"""Number of the first of these runs, which differ from those of the games."""

NARROW = 4
"""Length of the short releases, no two of which may be equal."""

CROWD = 2000
"""Number of peers that make short releases at once."""

COINS = 24
"""Number of rounds in which each peer throws a coin."""

TINY = 0.01
"""Private noise, as a share of the update, under which the result of a coin is visible."""


@dataclass(frozen=True)
class Noise:
    """Noise of many releases, and its expected distribution.

    Attributes
    ----------
    what
        Name of the noise, as the subject of a sentence in the singular.
    part
        Origin of the noise, as the heading of its claims.
    points
        ``[M, P]`` points of the grid; simultaneous releases of the peers of a ring are adjacent.
    expected
        Standard deviation of a number, in points.
    ring
        Length of the ring whose neighbours share masks; 1 without masks.
    """

    what: str
    part: str
    points: Ints
    expected: float
    ring: int = 1

    @property
    def independent(self) -> Ints:
        """Return releases that share no mask: of every other peer, alternately those with even and with odd numbers."""
        number = np.arange(len(self.points))
        turn, place = number // self.ring, number % self.ring
        return self.points if self.ring == 1 else self.points[place % 2 == turn % 2]

    @property
    def apart(self) -> npt.NDArray[np.bool_] | None:
        """Return pairs of releases that share no mask as they were not made at once, ``[M, M]``; ``None`` for all."""
        turn = np.arange(len(self.points)) // self.ring
        return None if self.ring == 1 else np.asarray(turn[:, None] != turn[None, :])

    def claims(self) -> list[ExactClaim]:
        """Test everything that a correct build guarantees for this noise."""
        chosen = self.independent
        tests: Sequence[tuple[str, str, Callable[[], StatisticalResult]]] = (
            (
                "has its deviation",
                "The standard deviation is what is accounted (relative error).",
                lambda: noise_tests.deviation(chosen, expected=self.expected),
            ),
            (
                "is normal",
                "A histogram, tails included, fits the normal distribution (chi-square).",
                lambda: noise_tests.distribution(chosen, expected=self.expected),
            ),
            (
                "is fine-grained",
                "Each bit far below the deviation is 1 half of the time (standard deviations off).",
                lambda: noise_tests.low_bits(chosen, expected=self.expected),
            ),
            (
                "is everywhere",
                "Every number of a row and every release has it in full (surprise in powers of ten).",
                lambda: noise_tests.places(chosen, expected=self.expected),
            ),
            (
                "is never shared",
                "No two releases of any peers, rounds, attempts or runs have correlated noise (correlation).",
                lambda: noise_tests.find_shared_noise(self.points, apart=self.apart),
            ),
            (
                "never repeats",
                "The numbers of a release are independent of each other (standard deviations off).",
                lambda: noise_tests.find_repeated_noise(chosen),
            ),
        )
        return [_claim(f"{self.what} {name}", sentence, test(), self.part) for name, sentence, test in tests]


def check_stacked_noise(settings: Settings, *, fresh: Fresh) -> list[ExactClaim]:
    """Check the noise and the masks of stacked peers separately.

    Parameters
    ----------
    settings
        Settings that protect the models.
    fresh
        Function that makes the source of each run.
    """
    plain = replace(settings, participation=1.0, layers=())
    found: list[ExactClaim] = []
    unit = 2.0**settings.bits
    if settings.noise:
        points = _points(replace(plain, mask=0.0), fresh=fresh)
        found += Noise("private noise", "stacked peers", points, settings.noise * unit).claims()
        found.append(alike(replace(plain, mask=0.0), fresh=fresh))
    if settings.mask:
        alone = replace(plain, noise=0.0)
        points = _points(alone, fresh=fresh)
        found += Noise("mask", "stacked peers", points, settings.mask * unit * 2**0.5, PEERS).claims()
        found.append(unknown(fresh=fresh))
    if settings.hidden and settings.participation < 1:
        found.append(unforeseen(plain, fresh=fresh))
    return found


def alike(settings: Settings, *, fresh: Fresh, count: int = 100_000) -> ExactClaim:
    """Search for two short releases with the same noise: of 2^32 keys about one pair is equal, of 2^16 most are.

    Parameters
    ----------
    settings
        Settings with private noise alone.
    fresh
        Function that makes the source of the run.
    count
        Number of releases.
    """
    graph = ring(CROWD)
    pipeline = Pipeline.keyed(settings, graph=graph, weights=[metropolis(graph)], source=fresh(FIRST))
    rounds = -(-count // CROWD)
    seen = {row.tobytes() for round in range(rounds) for row in _zeros(pipeline, round=round, size=NARROW)[0]}
    sentence = f"No two of {rounds * CROWD:,} releases have the same noise, as they would from few keys."
    return ExactClaim("noise never comes twice", sentence, float(rounds * CROWD - len(seen)), 0.0, "stacked peers")


def unknown(*, fresh: Fresh) -> ExactClaim:
    """Let an outsider who knows all public keys, but no private one, compute a mask.

    Parameters
    ----------
    fresh
        Function that makes the sources of the keys of two peers and of the outsider.
    """
    ada, bob, eve = (ExchangeKey.from_source(fresh(FIRST + number), peer="eve") for number in range(3))
    genuine = neighbour_secrets(ada, peer="ada", publics={"bob": bob.public}, run="audit")
    eve.public = ada.public  # eve announces the key of ada
    guessed = neighbour_secrets(eve, peer="ada", publics={"bob": bob.public}, run="audit")
    known = sum(guessed[edge] == secret for edge, secret in genuine.items())
    sentence = "An outsider who knows all public keys and no private one cannot compute a mask (masks computed)."
    return ExactClaim("masks need a private key", sentence, float(known), 0.0, "stacked peers")


def unforeseen(settings: Settings, *, fresh: Fresh) -> ExactClaim:
    """Compare the abstentions in two runs of the same peers, with a fair coin and hardly any noise.

    Parameters
    ----------
    settings
        Settings that protect the models.
    fresh
        Function that makes the source of each run.
    """
    clear = replace(settings, clip=1.0, noise=TINY, mask=0.0, participation=0.5)
    update = draw(0, "audit coins").standard_normal((1, 64))  # [1, P]
    update /= np.linalg.norm(update)
    coins = []
    for run in range(RUNS):
        pipeline = _pipeline(clear, fresh=fresh, run=run)
        rounds = [_zeros(pipeline, round=round, size=64, update=update)[0] for round in range(COINS)]
        coins.append(np.array(rounds) @ update[0] * 2.0**-clear.bits > 0.5)  # [T, N], either 0 or 1
    same = int((coins[0] == coins[1]).sum())
    count = coins[0].size
    return ExactClaim(
        "sitting out is unforeseeable",
        f"Two runs agree on half of {count} coins, as chance does (standard deviations off).",
        abs(same - count / 2) / (count / 4) ** 0.5,
        noise_tests.normal(tests=1),
        "stacked peers",
    )


def _claim(name: str, sentence: str, found: StatisticalResult, part: str) -> ExactClaim:
    return ExactClaim(name, sentence, found.measured, found.allowed, part)


def _pipeline(settings: Settings, *, fresh: Fresh, run: int) -> Pipeline:
    graph: Topology = ring(PEERS)
    return Pipeline.keyed(settings, graph=graph, weights=[metropolis(graph)], source=fresh(FIRST + run))


def _points(settings: Settings, *, fresh: Fresh) -> Ints:
    """Return the releases of all peers for an update of zero, by run and round, two per round, ``[M, P]``.

    A row is released block by block, so both ends of one that is longer than a block follow, as two releases.
    """
    pipelines = [_pipeline(settings, fresh=fresh, run=run) for run in range(RUNS)]
    rounds = [_zeros(each, round=round, size=SIZE, releases=2) for each in pipelines for round in range(ROUNDS)]
    (long,) = _zeros(pipelines[0], round=ROUNDS, size=BLOCK + SIZE)
    return np.concatenate([release for releases in rounds for release in releases] + [long[:, :SIZE], long[:, -SIZE:]])


def _zeros(pipeline: Pipeline, *, round: int, size: int, releases: int = 1, update: Floats | None = None) -> list[Ints]:
    """Return the points that all peers release for one update, zero by default, ``[N, P]`` each."""
    since = torch.zeros(len(pipeline.peers), size, dtype=torch.float64)  # [N, P]
    rows = since if update is None else since + torch.from_numpy(update)
    net = pipeline.round(round)
    made: list[Released] = [run_without_loop(net.release(rows, since=Public(since))) for _ in range(releases)]
    return [each.rows.numpy() for each in made]
