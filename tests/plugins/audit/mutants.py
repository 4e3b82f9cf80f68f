"""Builds that are broken on purpose, which part of the audit must notice each, and which tests look near it.

Some are those of security reviews, the others are ours. ``python -m benchmarks.audit`` prints what the audit and the
tests make of each.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import builds
import numpy as np
import torch
from scipy.special import ndtr
from scipy.stats import laplace
from sklearn import datasets

from code_patches import patched
from p2pfl.algorithms import averaging
from p2pfl.core import files
from p2pfl.core.neighbourhood import Public as Known
from p2pfl.experiment import plan, read
from p2pfl.network.protocol.wire import envelope
from p2pfl.plugins.audit import accounting_claims, dp_sgd_claims, noise_claims, release_claims, total_attacks
from p2pfl.plugins.audit.claims import ExactClaim
from p2pfl.plugins.audit.live import restarts, secure_sums
from p2pfl.plugins.audit.pipeline import Target
from p2pfl.privacy import PrivateNeighbourhood, Settings
from p2pfl.privacy import release as release_
from p2pfl.privacy.accounting import accountant
from p2pfl.privacy.keys import SecretSource, SeededSource, SenderKey
from p2pfl.results.spending import sampling
from p2pfl.results.spending.meter import Meter
from p2pfl.topology import metropolis, ring

BOTH = Settings(clip=1.0, noise=1.0, mask=4.0, participation=0.5)
MASKS = Settings(mask=4.0)
ROUNDS = 8

RING = {"topology": {"kind": "ring", "peers": 8}, "data": {"name": "wine"}, "model": {"name": "linear"}}
RING |= {"learning": {"device": "cpu"}}
COMPLETE = RING | {"topology": {"kind": "complete", "peers": 5}}
ACCOUNTED = (
    RING | {"privacy": {"mode": "pairwise", "clip": 1.0, "noise": 1.0, "mask": 4.0}},
    COMPLETE | {"rounds": 6, "privacy": {"mode": "pairwise", "epsilon": 8.0, "adjacency": "replace", "colluders": 2}},
    COMPLETE | {"rounds": 6, "privacy": {"mode": "secagg", "noise": 1.0, "clip": 1.0, "colluders": 2}},
    RING | {"privacy": {"mode": "pairwise", "clip": 1.0, "noise": 2.0, "mask": 4.0, "participation": 0.5}},
)
SAMPLED = RING | {"rounds": 3, "learning": {"device": "cpu", "example_noise": 1.0, "max_norm": 1.0, "batch": 8}}
EXACT = {"rounds": 3, "topology": {"kind": "complete", "peers": 4}, "data": {"name": "wine"}}
EXACT |= {"model": {"name": "boosting"}, "privacy": {"mode": "pairwise"}}
BOUNDS = {name: [-5.0, 5.0] for name in datasets.load_wine().feature_names}
BOOSTED = EXACT | {
    "rounds": 5,
    "model": {"name": "random_boosting", "options": {"bounds": BOUNDS}},
    "privacy": {"mode": "pairwise", "epsilon": 4.0, "colluders": 1},
}


def drawn_as(change):
    """Change the normal numbers of private noise: ``change(numbers)``, ``[K, P]``."""

    def build(patch):
        class Changed(release_.NoiseSampler):
            def __init__(self, deviation):
                super().__init__(deviation)
                self.deviation = deviation

            def window(self, keys, span):
                points = super().window(keys, span)
                return np.rint(change(points / self.deviation) * self.deviation).astype(points.dtype)

        patch.setattr(release_, "NoiseSampler", Changed)

    return build


def without(place):
    """Leave numbers of a release without private noise."""

    def change(numbers):
        numbers[:, place] = 0.0
        return numbers

    return drawn_as(change)


def cut(patch):
    """Cut all normal numbers at three deviations."""
    drawn_as(lambda numbers: np.clip(numbers, -3.0, 3.0))(patch)


def seeded_peers(patch):
    """Live peers draw all their secrets from the experiment's seed."""
    for module in ("peer", "launch.worker"):
        patch.setattr(f"p2pfl.network.peer.{module}.SecretSource", lambda: SeededSource(0))


def twice(numbers):
    half = numbers.shape[1] // 2
    numbers[:, half : 2 * half] = numbers[:, :half]
    return numbers


def restarts_not_charged(patch):
    """Forget what was spent before a restart."""
    real = Meter.__init__
    patch.setattr(Meter, "__init__", lambda self, *args, **how: real(self, *args, **{**how, "earlier": None}))


def partial_keeps_private_numbers(patch):
    """Partial sharing takes what nobody sent for public."""

    async def mean(self, net, rows, *, since, masses):
        released = await net.release(rows, since=since, masses=masses)
        return (await self.gossip(net, released)).average(own=Known(rows))

    patch.setattr(averaging.Averaging, "__call__", mean)


def noise_before_clip(patch):
    """Private noise is added to the update, and then both are clipped."""
    real = PrivateNeighbourhood._hide

    def hide(self, update, attempt):
        keys = self._noise_keys(attempt)
        if not keys:
            return real(self, update, attempt)
        unit = 2.0**self._settings.bits
        sampler = release_.NoiseSampler(self._settings.noise * unit)
        size = update.rows.shape[1]
        width = release_.VALUES_PER_BLOCK // len(keys)
        drawn = [sampler.window(keys, span).copy() for span in release_.spans(size, width)]
        noise = torch.from_numpy(np.concatenate(drawn, axis=1) / unit)
        kept, self._settings = self._settings, replace(self._settings, noise=0.0)
        try:
            return real(self, replace(update, rows=update.rows.double() + noise), attempt)
        finally:
            self._settings = kept

    patch.setattr(PrivateNeighbourhood, "_hide", hide)


def one_sender_key(patch):
    """The sender key follows from the exchange key, which incarnations share."""
    real = envelope.Envelope.__init__

    def begin(self, *given):
        real(self, *given)
        self.sender = SenderKey(hashlib.sha256(self.exchange._private.private_bytes_raw()).digest())

    patch.setattr(envelope.Envelope, "__init__", begin)


def accounted_at(**changes):
    """DP-SGD is accounted with other numbers than those of training."""

    def build(patch):
        real = sampling.SampledSteps
        made = lambda noise, rate, steps: real(  # noqa: E731
            noise * changes.get("noise", 1), rate * changes.get("rate", 1), int(steps * changes.get("steps", 1))
        )
        patch.setattr(sampling, "SampledSteps", made)
        patch.setattr("p2pfl.experiment.resolved.SampledSteps", made)

    return build


def replacements_count_half(patch):
    """Replacing an update by another counts as leaving it out."""
    patch.setitem(accountant._CHANGE_FACTORS, "replace", 1.0)


def files_for_all(patch):
    real = files.Drive.write
    patch.setattr(files.Drive, "write", lambda self, path, data, *, mode: real(self, path, data, mode=mode | 0o044))


def _claimed(settings):
    graph = ring(6)
    return release_claims.check_release(Target(settings, graph, [metropolis(graph)], _fresh), keys=2000)


def _fresh(_number):
    return SecretSource()


@cache
def _secagg():
    table = {"topology": {"kind": "complete", "peers": 4}, "data": {"name": "wine"}, "model": {"name": "linear"}}
    return plan(read({**table, "learning": {"device": "cpu"}, "privacy": {"mode": "secagg"}}))


def _released(settings):
    return restarts.check_releases(replace(settings, participation=1.0), rounds=ROUNDS)


def _planned(table):
    return plan(read(table))  # not kept: a mutant may change it


def _accounted():
    """Check the accounting in four modes."""
    found = []
    for table in ACCOUNTED:
        resolved = _planned(table)
        found += accounting_claims.accounts(resolved, stated=resolved.protection.observers())
    return found


PARTS: dict[str, Callable[[], list[ExactClaim]]] = {
    "clip": lambda: _claimed(BOTH),
    "stacked": lambda: noise_claims.check_stacked_noise(BOTH, fresh=_fresh),
    "live": lambda: _released(BOTH),
    "masks": lambda: _released(MASKS),
    "sums": lambda: secure_sums.sums(_secagg()),
    "keys of sums": lambda: [secure_sums.check_keys()],
    "exact totals": lambda: total_attacks.totals(_planned(EXACT), fresh=_fresh, trials=1000),
    "totals": lambda: total_attacks.totals(_planned(BOOSTED), fresh=_fresh, trials=6000),
    "training": lambda: dp_sgd_claims.check_training(_planned(SAMPLED), fresh=_fresh),
    "accounting": _accounted,
}
"""Parts of the audit that can be run alone, each with the settings under which it looks."""

PRIVATE = ("tests/privacy/test_release.py", "tests/privacy/test_every_round.py")


@dataclass(frozen=True)
class Mutant:
    """One of them.

    Attributes
    ----------
    name
        For people.
    build
        Breaks the build for as long as a patch lasts.
    part
        Of the audit, which must notice it; empty if none does.
    said
        The claim that must be broken.
    tests
        That look near it.
    """

    name: str
    build: Callable
    part: str
    said: str
    tests: Sequence[str] = PRIVATE


STREAM = ("tests/privacy/test_mask_stream.py", *PRIVATE)
MASKED = (
    "tests/network/protocol/ledgers/test_mask_slots.py",
    "tests/privacy/test_masks.py",
    "tests/privacy/keys/test_exchange.py",
)
SEALED = ("tests/privacy/keys/test_sealing.py", "tests/plugins/audit/test_secrets.py")
LIVE = (
    "tests/plugins/audit/test_secrets.py",
    "tests/network/peer/attacks/test_security.py",
    "tests/network/peer/test_live.py",
)
SUMS = ("tests/privacy/secagg/test_protocol.py", "tests/network/secagg/test_sum_relay.py")

EPOCHS = ("tests/privacy/keys/test_exchange.py", *LIVE)
ENVELOPE = ("tests/network/protocol/wire/test_envelope.py", *SEALED)
TOTALS = ("tests/privacy/test_total_masks.py", "tests/network/protocol/totals")
BOOSTING = (
    "tests/plugins/exact/trees/test_random_boosting.py",
    "tests/privacy/test_total_masks.py",
)
SAMPLES = ("tests/learning/test_example_private.py",)
METER = ("tests/results/test_meter.py",)
ACCOUNTS = ("tests/privacy/test_accountant.py", "tests/privacy/test_leakage.py", "tests/experiment/test_protection.py")


def _mutants():
    """Read the table."""
    for owner, rows in tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8")).items():
        for name, (claim, tests, *change) in rows.items():
            part, _, said = claim.partition(": ")
            build = patched(*zip(*[iter(change)] * 3, strict=True)) if len(change) > 1 else eval(change[0])  # noqa: S307
            yield owner, Mutant(name, build, part, said, globals().get(tests) or tests.split("|"))


OWNED = list(_mutants())
MUTANTS = [mutant for _, mutant in OWNED]
"""All of them."""

HEADINGS = {number: owner for number, (owner, _) in enumerate(OWNED) if not number or OWNED[number - 1][0] != owner}
"""Whose the mutants from each number on are."""

__all__ = ["HEADINGS", "MUTANTS", "PARTS", "Mutant", "builds", "laplace", "ndtr"]  # the table knows the last three
