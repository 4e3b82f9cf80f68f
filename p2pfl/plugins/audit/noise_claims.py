"""Claims about all noise and masks: their distribution, and that no two releases share any."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch

from p2pfl.core.draws import draw
from p2pfl.core.neighbourhood import Public, Released, run_without_loop
from p2pfl.plugins.audit import statistical_tests
from p2pfl.plugins.audit.claims import STACKED, ExactClaim, claim
from p2pfl.plugins.audit.pipeline import FIRST_RUN, Fresh, Pipeline, Target
from p2pfl.plugins.audit.statistical_tests import Floats, Ints
from p2pfl.privacy import Settings
from p2pfl.privacy.keys import ExchangeKey
from p2pfl.privacy.masks import neighbour_secrets
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK
from p2pfl.topology import metropolis, ring

PEER_COUNT = 6
"""Number of peers of the tested pipeline."""

ROUND_COUNT = 12
"""Number of rounds of each run, with two releases each."""

RELEASE_SIZE = 4096
"""Length of a release."""

RUN_COUNT = 2
"""Number of runs, each with its own keys."""

SHORT_SIZE = 4
"""Length of the short releases, no two of which may be equal."""

CROWD_PEERS = 2000
"""Number of peers that make short releases at once."""

COIN_ROUNDS = 24
"""Number of rounds in which each peer throws a coin."""

COIN_NOISE = 0.01
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
        turn, position = number // self.ring, number % self.ring
        return self.points if self.ring == 1 else self.points[position % 2 == turn % 2]

    @property
    def apart(self) -> npt.NDArray[np.bool_] | None:
        """Return pairs of releases that share no mask as they were not made at once, ``[M, M]``; ``None`` for all."""
        turn = np.arange(len(self.points)) // self.ring
        return None if self.ring == 1 else np.asarray(turn[:, None] != turn[None, :])

    def claims(self) -> list[ExactClaim]:
        """Test everything that a correct build guarantees for this noise."""
        chosen, expected = self.independent, self.expected
        results = {
            "has its deviation": statistical_tests.deviation(chosen, expected=expected),
            "is normal": statistical_tests.distribution(chosen, expected=expected),
            "is fine-grained": statistical_tests.low_bits(chosen, expected=expected),
            "is everywhere": statistical_tests.every_position(chosen, expected=expected),
            "is never shared": statistical_tests.find_shared_noise(self.points, apart=self.apart),
            "never repeats": statistical_tests.find_repeated_noise(chosen),
        }
        return [claim(self.part, f"{{noise}} {name}", *result, noise=self.what) for name, result in results.items()]


def check_stacked_noise(settings: Settings, *, fresh: Fresh) -> list[ExactClaim]:
    """Check the noise and the masks of stacked peers separately.

    Parameters
    ----------
    settings
        Settings that protect the models.
    fresh
        Function that makes the source of each run.
    """
    graph = ring(PEER_COUNT)
    target = Target(replace(settings, participation=1.0), graph, [metropolis(graph)], fresh)
    claims = list[ExactClaim]()
    unit = 2.0**settings.bits
    if settings.noise:
        points = _points(target.with_settings(mask=0.0))
        claims += Noise("private noise", STACKED, points, settings.noise * unit).claims()
        claims.append(check_short_noise(target.with_settings(mask=0.0).settings, fresh=fresh))
    if settings.mask:
        points = _points(target.with_settings(noise=0.0))
        claims += Noise("mask", STACKED, points, settings.mask * unit * 2**0.5, PEER_COUNT).claims()
        claims.append(check_outsider(fresh))
    if settings.hidden and settings.participation < 1:
        claims.append(check_coins(target))
    return claims


def check_short_noise(settings: Settings, *, fresh: Fresh, count: int = 100_000) -> ExactClaim:
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
    graph = ring(CROWD_PEERS)
    pipeline, rounds = Target(settings, graph, [metropolis(graph)], fresh).run(FIRST_RUN), -(-count // CROWD_PEERS)
    seen = {row.tobytes() for round in range(rounds) for row in _zeros(pipeline, round=round, size=SHORT_SIZE)[0]}
    return claim(STACKED, "noise never comes twice", rounds * CROWD_PEERS - len(seen), count=rounds * CROWD_PEERS)


def check_outsider(fresh: Fresh) -> ExactClaim:
    """Let an outsider who knows all public keys, but no private one, compute a mask.

    Parameters
    ----------
    fresh
        Function that makes the sources of the keys of two peers and of the outsider.
    """
    ada, bob, eve = (ExchangeKey.from_source(fresh(FIRST_RUN + number), peer="eve") for number in range(3))
    genuine = neighbour_secrets(ada, peer="ada", publics={"bob": bob.public}, run="audit")
    eve.public = ada.public  # eve announces the key of ada
    guessed = neighbour_secrets(eve, peer="ada", publics={"bob": bob.public}, run="audit")
    guesses = sum(guessed[edge] == secret for edge, secret in genuine.items())
    return claim(STACKED, "masks need a private key", guesses)


def check_coins(target: Target) -> ExactClaim:
    """Compare the abstentions in two runs of the same peers, with a fair coin and hardly any noise."""
    clear = target.with_settings(clip=1.0, noise=COIN_NOISE, mask=0.0, participation=0.5)
    update = draw(0, "audit coins").standard_normal((1, 64))  # [1, P]
    update /= np.linalg.norm(update)
    coins = []
    for run in range(RUN_COUNT):
        pipeline = clear.run(FIRST_RUN + run)
        rounds = [_zeros(pipeline, round=round, size=64, update=update)[0] for round in range(COIN_ROUNDS)]
        coins.append(np.array(rounds) @ update[0] * 2.0**-clear.settings.bits > 0.5)  # [T, N], either 0 or 1
    same, count = int((coins[0] == coins[1]).sum()), coins[0].size
    off = abs(same - count / 2) / (count / 4) ** 0.5
    return claim(STACKED, "sitting out is unforeseeable", off, statistical_tests.normal(tests=1), count=count)


def _points(target: Target) -> Ints:
    """Return the releases of all peers for an update of zero, by run and round, two per round, ``[M, P]``.

    A row is released block by block, so both ends of one that is longer than a block follow, as two releases.
    """
    pipelines = [target.run(FIRST_RUN + run) for run in range(RUN_COUNT)]
    rounds = [
        _zeros(each, round=round, size=RELEASE_SIZE, releases=2) for each in pipelines for round in range(ROUND_COUNT)
    ]
    (long,) = _zeros(pipelines[0], round=ROUND_COUNT, size=VALUES_PER_BLOCK + RELEASE_SIZE)
    return np.concatenate(
        [release for releases in rounds for release in releases] + [long[:, :RELEASE_SIZE], long[:, -RELEASE_SIZE:]]
    )


def _zeros(pipeline: Pipeline, *, round: int, size: int, releases: int = 1, update: Floats | None = None) -> list[Ints]:
    """Return the points that all peers release for one update, zero by default, ``[N, P]`` each."""
    since = torch.zeros(len(pipeline.peers), size, dtype=torch.float64)  # [N, P]
    rows = since if update is None else since + torch.from_numpy(update)
    net = pipeline.round(round)
    made: list[Released] = [run_without_loop(net.release(rows, since=Public(since))) for _ in range(releases)]
    return [each.rows.numpy() for each in made]
