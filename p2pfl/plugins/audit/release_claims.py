"""Claims about the release, whatever the noise: masks cancel, clipping holds, keys are fresh."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse
import torch

from p2pfl.core.draws import draw
from p2pfl.core.neighbourhood import Public, run_without_loop
from p2pfl.plugins.audit.claims import CLIP_LENGTHS, RELEASE, ExactClaim, claim, list_lengths
from p2pfl.plugins.audit.pipeline import Floats, Fresh, Pipeline, Target, numbers
from p2pfl.privacy.keys import KEY_BYTES, SeededSource
from p2pfl.privacy.normal_stream import VALUES_PER_BLOCK
from p2pfl.simulation.stacked import StackedNeighbourhood
from p2pfl.topology import Weights

KEY_COUNT = 300_000
"""Number of keys, no two of which may be equal; with only 2^32 possible sources about ten pairs would be."""

ROW_SIZE = 1000
"""Length of the released rows."""

LONG_SIZE = VALUES_PER_BLOCK + ROW_SIZE
"""Length of a row that is released piece by piece."""

COIN_ROUNDS = 200
"""Number of rounds in which a peer participates or not."""


def check_release(target: Target, *, keys: int = KEY_COUNT) -> list[ExactClaim]:
    """Check all claims that apply to the settings of a target.

    Parameters
    ----------
    target
        Release that is checked.
    keys
        Number of keys to draw.

    Examples
    --------
    >>> from p2pfl.privacy import Settings
    >>> from p2pfl.topology import metropolis, ring
    >>> target = Target(Settings(clip=1.0, noise=0.1, mask=2.0), ring(3), [metropolis(ring(3))], SeededSource)
    >>> [claim.broken for claim in check_release(target, keys=1000)]
    [False, False, False, False]
    """
    settings = target.settings
    seeded = replace(target, fresh=SeededSource)  # so that releases differ by what is compared alone
    claims = list[ExactClaim]()
    if settings.mask > 0:
        claims.append(check_cancellation(seeded))
    if not math.isinf(settings.clip):
        claims.append(check_clipping(seeded))
    if settings.hidden and settings.participation < 1:
        claims += check_abstention(seeded)
    if settings.hidden:
        claims += check_keys(target.fresh, peers=target.graph.peers, count=keys)
    return claims


def check_cancellation(target: Target) -> ExactClaim:
    """Check that masks which every peer draws by itself, as devices do, sum to zero exactly."""
    pipeline = target.with_settings(noise=0.0, participation=1.0).run(target.seed)
    nothing = np.zeros((1, ROW_SIZE))
    total = sum(_release_alone(pipeline, peer, nothing, since=nothing)[0] for peer in pipeline.peers)
    return claim(RELEASE, "masks cancel", np.abs(total).max())  # sums of grid points are exact


def check_clipping(target: Target) -> ExactClaim:
    """Check that an update of any length, under the same keys, moves the release by no more than the clip.

    The length is in all numbers, or in the first or the last one, so that a number that does not count shows.
    """
    pipeline, settings = target.with_settings(participation=1.0).run(target.seed), target.settings
    since, every = draw(target.seed, "audit clip").standard_normal((2, 1, LONG_SIZE))
    every *= settings.clip / float(np.linalg.norm(every))
    directions = (every, np.zeros_like(every), np.zeros_like(every))
    directions[1][0, 0] = directions[2][0, -1] = settings.clip
    weights = torch.full((1, 1), 2.5, dtype=torch.float64)  # [1, 1]: no weight increases the norm
    updates = [since, *(since + length / 2.5 * each for length in CLIP_LENGTHS for each in directions)]
    still, *moved = (_release_alone(pipeline, pipeline.peers[0], rows, since=since, masses=weights) for rows in updates)
    reach = max(float(np.linalg.norm(each - still)) for each in moved)
    grid = 2.0**-settings.bits * math.sqrt(LONG_SIZE) / 2 if settings.hidden else 1e-9 * float(np.abs(since).max())
    allowed = settings.clip * (1 + 1e-9) + grid
    return claim(RELEASE, "updates are clipped", reach, allowed, lengths=list_lengths())


def check_abstention(target: Target) -> list[ExactClaim]:
    """Check that abstention equals an update of zero, and that the share of abstentions is as accounted."""
    settings = target.settings
    drawn, fixed = (each.run(target.seed) for each in (target, target.with_settings(participation=1.0)))
    nothing = np.zeros((1, ROW_SIZE))
    update = draw(target.seed, "audit participation").standard_normal((1, ROW_SIZE))
    update *= (1.0 if math.isinf(settings.clip) else settings.clip) / np.linalg.norm(update)
    peer, odd, joined = drawn.peers[0], 0.0, 0
    for round in range(COIN_ROUNDS):
        seen = _release_alone(drawn, peer, update, since=nothing, round=round)
        away, there = (
            float(np.abs(seen - _release_alone(fixed, peer, rows, since=nothing, round=round)).max())
            for rows in (nothing, update)
        )
        odd, joined = max(odd, min(away, there)), joined + (there < away)
    share = settings.participation
    off = abs(joined - COIN_ROUNDS * share) / math.sqrt(COIN_ROUNDS * share * (1 - share))
    return [
        claim(RELEASE, "sitting out does not show", odd, 2.0 * 2.0**-settings.bits),
        claim(RELEASE, "as many sit out as are accounted", off, 5.0, turns=COIN_ROUNDS, share=share),
    ]


def _release_alone(
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
    net = pipeline.hide(StackedNeighbourhood([own], round=round, seed=0), round=round)
    return numbers(
        run_without_loop(net.release(torch.from_numpy(rows), since=Public(torch.from_numpy(since)), masses=masses))
    )


def check_keys(fresh: Fresh, *, peers: Sequence[str], count: int = KEY_COUNT) -> list[ExactClaim]:
    """Check that no key appears twice: neither the first keys of many runs nor the keys of one run.

    By the birthday bound :math:`n` keys of a source with :math:`K` states contain about
    :math:`n^2 / 2K` equal pairs: ten for 300,000 keys and 32 bits, the seeds of torch and of
    numpy's old generators. For 256 bits the probability of one pair is below :math:`10^{-60}`.
    """
    source = fresh(0)
    many = {fresh(number).bytes(KEY_BYTES, purpose="exchange", peer=peers[0]) for number in range(count)}
    few = {
        source.bytes(KEY_BYTES, purpose="noise 0", peer=peers[number % len(peers)], round=number // len(peers))
        for number in range(count)
    }
    names = ("keys of runs differ", "keys of a run differ")
    return [claim(RELEASE, name, count - len(keys), count=count) for name, keys in zip(names, (many, few), strict=True)]
