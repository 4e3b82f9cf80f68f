"""Attacks on a short live run: releases before and after a restart, and the settlement of masks."""

from __future__ import annotations

import asyncio
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from p2pfl.experiment import Plan
from p2pfl.plugins.audit import noise_tests
from p2pfl.plugins.audit.claims import LIVE, ExactClaim, claim
from p2pfl.plugins.audit.live.secure_sums import sums
from p2pfl.plugins.audit.live.tap import Encryptions, Tap, Tapped, TappedRelease, record_ciphers
from p2pfl.plugins.audit.live.watched_runs import SettlementResult, interrupt_run, launch_peers, overlook_mask, short
from p2pfl.plugins.audit.noise_claims import Noise
from p2pfl.plugins.audit.noise_tests import Ints
from p2pfl.privacy import Settings
from p2pfl.privacy.accounting.spending import Cost

Result = TypeVar("Result")

RING = 6
"""Number of peers of the watched ring, in which neighbours share masks."""

COMPLETE = 4
"""Number of peers of the run that settles."""

ROUNDS = 10
"""Number of rounds of each run."""

SIZE = 4096
"""Length of a release."""

AGAIN = 1
"""Round that is released again after a restart."""

LAST = 2
"""Last round of the run that settles."""

KEEPING = "d2"
"""Algorithm of the run that settles; its state keeps trained parameters that were never released."""

BLOCK = 16
"""Length in bytes of the blocks of payload that no two runs may share."""


def live(plan: Plan, *, rounds: int = ROUNDS) -> list[ExactClaim]:
    """Attack live peers that protect their models as in the experiment.

    Parameters
    ----------
    plan
        Plan of the experiment, of which only noise, masks, clip and adjacency are used.
    rounds
        Number of rounds of each watched run.

    Returns
    -------
    list of ExactClaim
        Claims about live peers.

    Examples
    --------
    >>> from p2pfl.experiment import plan, read
    >>> live(plan(read({"name": "open"})))  # nothing is hidden
    []
    """
    settings = replace(plan.protection.settings, participation=1.0)
    found = [] if plan.protection.sums is None else sums(plan)
    if not settings.hidden:
        return found
    found += check_releases(settings, rounds=rounds)
    if settings.mask:
        found += check_settling(settings, adjacency=plan.protection.wanted.adjacency)
    return found


def check_releases(settings: Settings, *, rounds: int = ROUNDS) -> list[ExactClaim]:
    """Run the same peers twice, and once more with a restart, and check all their releases.

    Parameters
    ----------
    settings
        Settings that protect the models.
    rounds
        Number of rounds of each of the first two runs.
    """
    tap, sealed = Tap(), Encryptions()
    plan = Tapped.of(short(settings, kind="ring", peers=RING, rounds=rounds), tap, size=SIZE)
    brief = Tapped.of(short(settings, kind="ring", peers=RING, rounds=AGAIN + 2), tap, size=SIZE)
    with record_ciphers(lambda *encrypted: sealed.note(tap.run, *encrypted)):
        for run in range(2):
            tap.run = run
            _in_folder(lambda folder: launch_peers(plan, folder))
        tap.run = 2
        costs = _in_folder(lambda folder: interrupt_run(brief, folder, round=AGAIN))
    peers = plan.topology.peers
    before, after, again = (np.array(_turns(tap.table(runs), peers)) for runs in ([2], [3], [4]))
    return [
        *_noises(np.array(_turns(tap.table([0, 1]), peers)), settings),
        *_afresh(before, after, settings),
        *_afresh(np.concatenate([before, after]), again, settings, of=" from a copy"),
        *([_counted(tap.table([2, 3]), costs, brief)] if brief.protection.claimed else []),
        claim(LIVE, "live peers draw new keys", len(tap.keys[0] & tap.keys[1])),
        fresh_bytes(tap),
        *sealings(sealed),
    ]


def sealings(sealed: Encryptions) -> list[ExactClaim]:
    """Check the keys and nonces under which peers encrypted, in two runs and over restarts.

    Parameters
    ----------
    sealed
        Record of what peers encrypted. Runs 0 and 1 are two runs of one experiment; in run 2 they are killed, and
        they resume in run 3, and in run 4 once more from a copy.
    """
    shared = len(sealed.keys(0) & sealed.keys(1)) if sealed.keys(0) and sealed.keys(1) else math.inf
    return [
        claim(LIVE, "live peers encrypt under new keys", shared),
        claim(LIVE, "no key and nonce encrypt twice", sealed.repeated()),
    ]


def fresh_bytes(tap: Tap) -> ExactClaim:
    """Compare the payloads of two runs, block by block."""
    first, second = (
        {frame[start : start + BLOCK] for frame in tap.frames[run] for start in range(64, len(frame) - BLOCK, BLOCK)}
        - {bytes(BLOCK)}  # padding of the message that tests whether a broker accepts large ones
        for run in range(2)
    )
    return claim(LIVE, "live peers seal anew", len(first & second))


def check_settling(settings: Settings, *, adjacency: str = "zero-out") -> list[ExactClaim]:
    """Let one peer miss another in the last round: both are charged for it, and the correction is public.

    Parameters
    ----------
    settings
        Settings that protect the models.
    adjacency
        Adjacency of the guarantee.
    """
    tap = Tap()
    table: dict[str, Any] = {"kind": "complete", "peers": COMPLETE, "rounds": LAST + 1, "adjacency": adjacency}
    plan = Tapped.of(short(settings, **table, algorithm=KEEPING), tap, size=SIZE, moving=True)
    found = asyncio.run(overlook_mask(plan, round=LAST))
    claims = _settled(found, settings=settings)
    if plan.protection.claimed:
        claims.append(_charged(found, plan))
    return claims


def _settled(found: SettlementResult, *, settings: Settings) -> list[ExactClaim]:
    """Check that only a peer that owes a mask releases more than what is public, and that the excess is a mask."""
    sizes = sorted(float(np.sqrt(np.square(points * 2.0**-settings.bits).mean())) for points in found.paid.values())
    *others, owing = sizes or [0.0]
    few = len(next(iter(found.paid.values()))) if found.paid else 1
    return [
        claim(LIVE, "settling shows what is public", max(others, default=math.inf)),
        claim(LIVE, "settling is under a mask", abs(owing / settings.mask - 1), 5.0 / math.sqrt(2 * few)),
    ]


def _charged(found: SettlementResult, plan: Plan) -> ExactClaim:
    """Check that both ends of a mask that one of them left out are charged at the local floor."""
    cost, floor = plan.protection.cost.mu, plan.protection.local.mu
    wanted = LAST * cost**2 + floor**2
    lacking = max(
        wanted - sum(count * each.mu**2 for each, count in found.costs[name].items())
        for name in plan.topology.peers[:2]
    )
    return claim(LIVE, "half a mask is charged", lacking, 1e-9 * wanted)


def _counted(releases: Sequence[TappedRelease], costs: Mapping[str, Mapping[Cost, int]], plan: Plan) -> ExactClaim:
    """Check that every release is charged, including those that a restart repeats."""
    cost = plan.protection.cost.mu
    made = Counter(each.peer for each in releases if each.run == releases[-1].run or each.round <= AGAIN)  # and sent
    lacking = max(
        made[name] - sum(count * each.mu**2 for each, count in spent.items()) / cost**2 for name, spent in costs.items()
    )
    return claim(LIVE, "every release is charged", lacking, 1e-9)


def _noises(points: Ints, settings: Settings) -> list[ExactClaim]:
    """Check the releases ``[turns, N, P]`` and, where masks cancel over the ring, the noise that remains."""
    unit, count = 2.0**settings.bits, points.shape[1]
    whole = math.hypot(settings.noise, math.sqrt(2) * settings.mask) * unit
    rows = points.reshape(-1, points.shape[-1])
    ring = count if settings.mask else 1
    what = "mask" if not settings.noise else "mask with noise" if settings.mask else "private noise"
    found = Noise(what, LIVE, rows, whole, ring).claims()
    if settings.mask:
        left = points.sum(axis=1)  # [turns, P]: masks cancel
        if settings.noise:
            found += Noise("private noise", LIVE, left, settings.noise * unit * math.sqrt(count)).claims()
        else:
            found.append(claim(LIVE, "live masks cancel", np.abs(left).max()))
    return found


def _afresh(before: Ints, after: Ints, settings: Settings, *, of: str = "") -> list[ExactClaim]:
    """Predict the releases after a restart, or one ``of`` a kind, from those before it, ``[turns, N, P]`` each.

    Masks of the abandoned attempt may be in a release once more, if one end has to correct for the other. The release
    must have its own masks and noise as well.
    """
    unit, count = 2.0**settings.bits, after.shape[1]
    whole = math.hypot(settings.noise, math.sqrt(2) * settings.mask) * unit
    earlier, later = (points.reshape(-1, points.shape[-1]) for points in (before, after))
    claims = [claim(LIVE, "releases after a restart{of} are fresh", *_predicted(earlier, later, expected=whole), of=of)]
    if settings.mask and settings.noise:
        known, new = before.sum(axis=1), after.sum(axis=1)  # [turns, P]: masks cancel
        shares = _predicted(known, new, expected=settings.noise * unit * math.sqrt(count))
        claims.append(claim(LIVE, "noise after a restart{of} is fresh", *shares, of=of))
    return claims


def _predicted(known: Ints, new: Ints, *, expected: float) -> tuple[float, float]:
    """Return the largest share of a row's deviation that other rows explain, and the share that may be chance."""
    rows = known.T.astype(np.float64)  # [P, K]
    targets = new.T.astype(np.float64)  # [P, M]
    left = targets - rows @ np.linalg.lstsq(rows, targets, rcond=None)[0]
    freedom = rows.shape[0] - rows.shape[1]
    deviations = np.sqrt(np.square(left).sum(axis=0) / freedom)  # [M]
    lacking = float(1 - deviations.min() / expected)
    return lacking, noise_tests.normal(tests=len(new)) / math.sqrt(2 * freedom)


def _turns(releases: Sequence[TappedRelease], peers: Sequence[str]) -> list[list[Ints]]:
    """Return the points of all peers for each run and round that all of them released, in the order of ``peers``."""
    turns: dict[tuple[int, int], dict[str, Ints]] = {}
    for each in releases:
        turns.setdefault((each.run, each.round), {})[each.peer] = each.points
    return [[found[peer] for peer in peers] for found in turns.values() if len(found) == len(peers)]


def _in_folder(run: Callable[[Path], Coroutine[Any, Any, Result]]) -> Result:
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(run(Path(folder)))
