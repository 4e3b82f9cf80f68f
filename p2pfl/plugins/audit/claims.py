"""Exact claims, whatever the noise: masks cancel, clipping holds, abstention does not show, keys are fresh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import scipy.sparse
import torch

from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.core.rows import draw
from p2pfl.plugins.audit import noise_tests
from p2pfl.plugins.audit.pipeline import Floats, Fresh, Pipeline, numbers
from p2pfl.privacy import Settings
from p2pfl.privacy.keys import KEY_BYTES, SeededSource
from p2pfl.privacy.normal_stream import BLOCK
from p2pfl.privacy.ring_masks import Ring
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import Topology, Weights

KEYS = 300_000
"""Number of keys, no two of which may be equal; with only 2^32 possible sources about ten pairs would be."""

SIZE = 1000
"""Length of the released rows."""

LONG = BLOCK + SIZE
"""Length of a row that is released piece by piece."""

LENGTHS = (1.01, 1.1, 1.5, 3.0, 1e6)
"""Lengths of the updates that must be clipped, in clips: a soft clip lets those through that are hardly too long."""

TURNS = 200
"""Number of rounds in which a peer participates or not."""


@dataclass(frozen=True)
class ExactClaim:
    """Exact claim, and the measurement that tests it.

    Parameters
    ----------
    name, sentence
        Claim in short, and as a sentence.
    measured, allowed
        Measurement, and the largest value that the claim permits.
    part
        Part of the system that is tested, as the heading in the report.
    """

    name: str
    sentence: str
    measured: float
    allowed: float
    part: str = "the release"

    @property
    def broken(self) -> bool:
        """True if the claim does not hold."""
        return not self.measured <= self.allowed


def claims(
    settings: Settings, *, graph: Topology, weights: Sequence[Weights], fresh: Fresh, seed: int = 0, keys: int = KEYS
) -> list[ExactClaim]:
    """Check all claims that apply to these settings.

    Parameters
    ----------
    settings, graph, weights
        Arguments of the pipeline.
    fresh
        Function that makes the sources of new runs.
    seed
        Seed of the rows.
    keys
        Number of keys to draw.

    Returns
    -------
    list of ExactClaim
        Every claim with its measurement.

    Examples
    --------
    >>> from p2pfl.topology import metropolis, ring
    >>> of = {"graph": ring(3), "weights": [metropolis(ring(3))], "fresh": SeededSource, "keys": 1000}
    >>> [claim.broken for claim in claims(Settings(clip=1.0, noise=0.1, mask=2.0), **of)]
    [False, False, False, False]
    """
    found = []
    flat = replace(settings, layers=())  # of rows of any length
    if settings.mask > 0:
        found.append(check_cancellation(flat, graph=graph, weights=weights, seed=seed))
    if not math.isinf(settings.clip):
        found.append(check_clipping(settings, graph=graph, weights=weights, seed=seed))
    if settings.hidden and settings.participation < 1:
        found += secret(flat, graph=graph, weights=weights, seed=seed)
    if settings.hidden:
        found += distinct(fresh, peers=graph.peers, count=keys)
    return found


def check_cancellation(settings: Settings, *, graph: Topology, weights: Sequence[Weights], seed: int = 0) -> ExactClaim:
    """Check that masks which every peer draws by itself, as devices do, sum to zero exactly."""
    bare = replace(settings, noise=0.0, participation=1.0)
    pipeline = Pipeline.keyed(bare, graph=graph, weights=weights, source=SeededSource(seed))
    nothing = np.zeros((1, SIZE))
    total = sum(_released(pipeline, peer, nothing, since=nothing)[0] for peer in graph.peers)
    left = float(np.abs(total).max())  # sums of grid points are exact
    return ExactClaim("masks cancel", "The masks of all peers sum to zero exactly.", left, 0.0)


def check_clipping(settings: Settings, *, graph: Topology, weights: Sequence[Weights], seed: int = 0) -> ExactClaim:
    """Check that an update of any length, under the same keys, moves the release by no more than the clip.

    Each layer that is clipped by itself has its share of the length, in all of its numbers or in the first or the last
    one, so that a bound that is exceeded in one layer shows, and a number that does not count.
    """
    whole = replace(settings, participation=1.0)
    pipeline = Pipeline.keyed(whole, graph=graph, weights=weights, source=SeededSource(seed))
    layers = settings.layers or (LONG,)
    since, every = draw(seed, "audit clip").standard_normal((2, 1, sum(layers)))
    directions = (every, np.zeros_like(every), np.zeros_like(every))
    for start, size, bound in zip(np.cumsum((0, *layers)), layers, settings.bounds, strict=False):
        part = every[:, start : start + size]
        part *= bound / max(float(np.linalg.norm(part)), 1e-300)
        if size:
            directions[1][0, start] = directions[2][0, start + size - 1] = bound
    masses = torch.full((1, 1), 2.5, dtype=torch.float64)  # [1, 1]: no weight increases the norm
    tried = [since, *(since + length / 2.5 * each for length in LENGTHS for each in directions)]
    still, *moved = (_released(pipeline, graph.peers[0], rows, since=since, masses=masses) for rows in tried)
    reach = max(float(np.linalg.norm(each - still)) for each in moved)
    grid = 2.0**-settings.bits * math.sqrt(sum(layers)) / 2 if settings.hidden else 1e-9 * float(np.abs(since).max())
    return ExactClaim(
        "updates are clipped",
        f"An update of {', '.join(f'{length:g}' for length in LENGTHS)} clips moves the release by at most one clip.",
        reach,
        settings.clip * (1 + 1e-9) + grid,
    )


def secret(settings: Settings, *, graph: Topology, weights: Sequence[Weights], seed: int = 0) -> list[ExactClaim]:
    """Check that abstention equals an update of zero, and that the share of abstentions is as accounted."""
    sure = replace(settings, participation=1.0)
    drawn, fixed = (
        Pipeline.keyed(each, graph=graph, weights=weights, source=SeededSource(seed)) for each in (settings, sure)
    )
    nothing = np.zeros((1, SIZE))
    update = draw(seed, "audit participation").standard_normal((1, SIZE))
    update *= (1.0 if math.isinf(settings.clip) else settings.clip) / np.linalg.norm(update)
    peer, odd, joined = graph.peers[0], 0.0, 0
    for round in range(TURNS):
        seen = _released(drawn, peer, update, since=nothing, round=round)
        away, there = (
            float(np.abs(seen - _released(fixed, peer, rows, since=nothing, round=round)).max())
            for rows in (nothing, update)
        )
        odd, joined = max(odd, min(away, there)), joined + (there < away)
    share = settings.participation
    return [
        ExactClaim(
            "sitting out does not show",
            "A peer that abstains in secret releases the same as with an update of zero.",
            odd,
            2.0 * 2.0**-settings.bits,
        ),
        ExactClaim(
            "as many sit out as are accounted",
            f"In {TURNS} rounds a peer participates in a share of {share:g}, up to chance (standard deviations off).",
            abs(joined - TURNS * share) / math.sqrt(TURNS * share * (1 - share)),
            5.0,
        ),
    ]


def _released(
    pipeline: Pipeline,
    peer: str,
    rows: Floats,
    *,
    since: Floats,
    round: int = 0,
    masses: torch.Tensor | None = None,
) -> Floats:
    """Return the release of one peer by itself, as on a device, ``[1, P]``."""
    own = Weights((peer,), scipy.sparse.csr_array(np.ones((1, 1))))
    net = pipeline.hidden(StackedNeighbourhood([own], round=round, seed=0), round=round)
    return numbers(
        run_without_loop(net.release(torch.from_numpy(rows), since=Public(torch.from_numpy(since)), masses=masses))
    )


def uniform(name: str, sentence: str, rows: Sequence[Ring], *, part: str) -> ExactClaim:
    """Count the ones in every bit of numbers of a ring, of each row separately and of all together: half are ones.

    Parameters
    ----------
    name, sentence, part
        Name and part of the claim, and its sentence without a full stop.
    rows
        Rows that are uniform if the build is correct, ``[P]`` each.

    Examples
    --------
    >>> rows = [np.frombuffer(SeededSource(0).bytes(8000, purpose="demo", peer="ada"), np.uint64)]
    >>> uniform("demo", "Rows are uniform", rows, part="demo").broken
    False
    >>> uniform("demo", "Rows are uniform", [rows[0] >> np.uint64(24)], part="demo").broken
    True
    """
    together = " (standard deviations off)."
    if not rows:
        return ExactClaim(name, f"{sentence}{together}", math.inf, 0.0, part)
    width = 8 * rows[0].itemsize
    shares = np.array(
        [
            [np.count_nonzero(row >> np.uint64(bit) & np.uint64(1)) for bit in range(width)]
            for row in (row.astype(np.uint64) for row in rows)
        ]
    )  # [M, bits]
    size = rows[0].size
    alone = np.abs(shares - size / 2) / (size / 4) ** 0.5
    all_ = np.abs(shares.sum(axis=0) - len(rows) * size / 2) / (len(rows) * size / 4) ** 0.5
    farthest = float(max(alone.max(), all_.max()))
    return ExactClaim(name, f"{sentence}{together}", farthest, noise_tests.normal(tests=shares.size + width), part)


def distinct(fresh: Fresh, *, peers: Sequence[str], count: int = KEYS) -> list[ExactClaim]:
    """Check that no key appears twice: neither the first keys of many runs nor the keys of one run.

    By the birthday bound :math:`n` keys of a source with :math:`K` states contain about
    :math:`n^2 / 2K` equal pairs: ten for 300,000 keys and 32 bits, the seeds of torch and of
    numpy's old generators. For 256 bits the probability of one pair is below :math:`10^{-60}`.
    """
    one = fresh(0)
    many = {fresh(number).bytes(KEY_BYTES, purpose="exchange", peer=peers[0]) for number in range(count)}
    few = {
        one.bytes(KEY_BYTES, purpose="noise 0", peer=peers[number % len(peers)], round=number // len(peers))
        for number in range(count)
    }
    sentence = "Among {} keys {} no two are equal, as they would be with only 2^32 seeds."
    return [
        ExactClaim(
            "keys of runs differ", sentence.format(f"{count:,}", "of as many runs"), float(count - len(many)), 0.0
        ),
        ExactClaim("keys of a run differ", sentence.format(f"{count:,}", "of one run"), float(count - len(few)), 0.0),
    ]


__all__ = ["ExactClaim", "check_cancellation", "check_clipping", "claims", "distinct", "secret", "uniform"]
