"""Builds that are broken on purpose, which part of the audit must notice each, and which tests look near it.

The first nineteen are those of the security review, the others are ours. ``python -m benchmarks.audit`` prints what the
audit and the tests make of each.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import builds
import numpy as np
import torch
from scipy.special import ndtr
from scipy.stats import laplace

from p2pfl.algorithms import averaging
from p2pfl.audit import claims, noise_claims
from p2pfl.audit.claims import ExactClaim
from p2pfl.audit.live import restarts, secure_sums
from p2pfl.experiment import plan, read
from p2pfl.identity import SecretSource, SeededSource, SenderKey
from p2pfl.neighbourhood import Public as Known
from p2pfl.neighbourhood import derived
from p2pfl.peer.masking import paying
from p2pfl.peer.masking.paying import Republished
from p2pfl.peer.masking.settling import Cover
from p2pfl.privacy import PrivateNeighbourhood, Settings, masks
from p2pfl.privacy import release as release_
from p2pfl.protocol.ledgers import payments
from p2pfl.report.spending.meter import Meter
from p2pfl.secagg import protocol as secagg
from p2pfl.topology import metropolis, ring

BOTH = Settings(clip=1.0, noise=1.0, mask=4.0, participation=0.5)
MASKS = Settings(mask=4.0)
LAYERS = Settings(clip=1.0, noise=1.0, layers=(900, 30, 7))
ROUNDS = 8


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


def noise_of_two_rounds(patch):
    """Rounds 1 and 2 have the same private noise, 3 and 4, and so on."""
    kept = {}

    def keys(self, attempt):
        if not self._settings.noise:
            return []
        turn = (self._round + 1) // 2
        return [
            kept.setdefault(
                (id(self._source), peer, attempt, turn),
                (self._source.bytes(32, purpose=f"noise {attempt}", peer=peer, round=self._round), self._source),
            )[0]
            for peer in self.peers
        ]

    patch.setattr(PrivateNeighbourhood, "_noise_keys", keys)


class Public:
    """A source that everybody can compute."""

    def bytes(self, size, *, purpose, peer, round=0):
        return hashlib.shake_256(f"{purpose} {peer} {round}".encode()).digest(size)


def from_names(method):
    """Draw in one method from names and rounds."""

    def build(patch):
        real = getattr(PrivateNeighbourhood, method)

        def drawn(self, attempt):
            if not self._settings.noise:
                return real(self, attempt)
            kept, self._source = self._source, Public()
            try:
                return real(self, attempt)
            finally:
                self._source = kept

        patch.setattr(PrivateNeighbourhood, method, drawn)

    return build


def last_layer_not_clipped(patch):
    real = release_._Update.factors

    def factors(self, group):
        found = real(self, group)
        if found.shape[1] > 1:
            found[:, -1] = 1.0
        return found

    patch.setattr(release_._Update, "factors", factors)


def masks_from_public_keys(patch):
    def secret(own, other_public, *, run):
        return hashlib.sha256(b"".join(sorted((own.public, other_public))) + run.encode()).digest()

    patch.setattr(masks, "edge_secret", secret)


def masks_again_after_going_back(patch):
    def key(mask, masks):
        a, b = mask.edge
        return payments.edge_key(masks.secrets[mask.edge], purpose="mask", a=a, b=b, round=mask.slot.round)

    patch.setattr(payments, "mask_key", key)


def masks_once_a_round(patch):
    real = masks.Masks.sums

    def sums(self, peers, *, round, size, attempt=0):
        return real(self, peers, round=round, size=size, attempt=attempt) * (attempt == 0)

    patch.setattr(masks.Masks, "sums", sums)


def cut(patch):
    """Cut all normal numbers at three deviations."""
    drawn_as(lambda numbers: np.clip(numbers, -3.0, 3.0))(patch)


def half_masks(patch):
    real = payments.points
    for module in ("p2pfl.protocol.ledgers.payments", "p2pfl.peer.masking.settling"):
        patch.setattr(f"{module}.points", lambda payment, **how: real(payment, **how) // 2)


def unmasked(keep):
    """Leave out masks of sums; ``keep(key, own)`` says which stay."""

    def build(patch):
        own, begin, mask = set(), secagg.Sender.__init__, secagg.mask

        def noted(self, *args, **how):
            begin(self, *args, **how)
            own.add(self._own)

        def fewer(values, *, plus, minus):
            some = [[key for key in keys if keep(key, own)] for keys in (plus, minus)]
            mask(values, plus=some[0], minus=some[1])

        patch.setattr(secagg.Sender, "__init__", noted)
        patch.setattr(secagg, "mask", fewer)

    return build


def halves_not_charged(patch):
    real = Meter.charge
    patch.setattr(Cover, "uncovered", lambda _self, _halves: [])
    patch.setattr(Meter, "charge", lambda self, round, *, whole: real(self, round, whole=whole or True))
    patch.setattr(Meter, "correct", lambda *_: None)


def seeded_peers(patch):
    """Live peers draw all their secrets from the experiment's seed."""
    for module in ("peer", "launch.worker"):
        patch.setattr(f"p2pfl.peer.{module}.SecretSource", lambda: SeededSource(0))


def noise_ends(patch):
    real = PrivateNeighbourhood._noise_keys

    def keys(self, attempt):
        return real(self, attempt) if self._round < 6 else []

    patch.setattr(PrivateNeighbourhood, "_noise_keys", keys)


def twice(numbers):
    half = numbers.shape[1] // 2
    numbers[:, half : 2 * half] = numbers[:, :half]
    return numbers


def settled_in_the_open(patch):
    """The release that pays masks holds what the algorithm keeps to itself."""
    real = paying.settle

    async def settle(algorithm, state, learner, net, **how):
        shift = state.extra.get("shift")
        leaking = state if shift is None else replace(state, public=derived(lambda rows: rows + shift, state.public))
        return await real(algorithm, leaking, learner, net, **how)

    patch.setattr(paying, "settle", settle)
    patch.setattr(Republished, "release", lambda self, rows, **how: self._net.release(rows, **how))


def narrow(method, size):
    """Keys of a few bytes."""

    def build(patch):
        real = getattr(PrivateNeighbourhood, method)

        def keys(self, attempt):
            return [hashlib.sha256(key[:size]).digest() for key in real(self, attempt)]

        patch.setattr(PrivateNeighbourhood, method, keys)

    return build


def narrow_masks(patch):
    """Keys of masks have two bytes."""
    for module in (masks, payments):
        real = module.edge_key

        def key(*args, real=real, **how):
            return hashlib.sha256(real(*args, **how)[:2]).digest()

        patch.setattr(module, "edge_key", key)


def largest_number_clipped(patch):
    """The largest number is clipped instead of the norm."""

    def factors(self, group):
        count = group.stop - group.start
        largest = np.abs(self.difference(group, slice(0, self.rows.shape[1]))).max(axis=-1, keepdims=True)
        return np.minimum(1.0, self.bounds[0] / np.maximum(largest, 1e-300)) * np.ones((count, len(self.layers)))

    patch.setattr(release_._Update, "factors", factors)


def restarts_not_charged(patch):
    """What was spent before a restart is forgotten."""
    real = Meter.__init__
    patch.setattr(Meter, "__init__", lambda self, *args, **how: real(self, *args, **{**how, "earlier": None}))


def sealed_under_names(patch):
    """The key under which a peer seals its rows follows from its name."""

    def drawn(cls, _source, *, peer, round=0):
        return cls(hashlib.sha256(f"{peer} {round}".encode()).digest())

    patch.setattr(SenderKey, "draw", classmethod(drawn))


def partial_keeps_private_numbers(patch):
    """Partial sharing takes what nobody sent for public."""

    async def mean(self, net, rows, *, since, masses):
        released = await net.release(rows, since=since, masses=masses)
        return (await self.gossip(net, released)).average(own=Known(rows))

    patch.setattr(averaging.Averaging, "__call__", mean)


def _claimed(settings):
    graph = ring(6)
    return claims.claims(settings, graph=graph, weights=[metropolis(graph)], fresh=_fresh, keys=2000)


def _fresh(_number):
    return SecretSource()


@cache
def _secagg():
    table = {"topology": {"kind": "complete", "peers": 4}, "data": {"name": "wine"}, "model": {"name": "linear"}}
    return plan(read({**table, "learning": {"device": "cpu"}, "privacy": {"mode": "secagg"}}))


def _released(settings):
    return restarts.released(replace(settings, participation=1.0, layers=()), rounds=ROUNDS)


PARTS: dict[str, Callable[[], list[ExactClaim]]] = {
    "clip": lambda: _claimed(LAYERS) + _claimed(BOTH),
    "stacked": lambda: noise_claims.stacked(BOTH, fresh=_fresh),
    "live": lambda: _released(BOTH),
    "masks": lambda: _released(MASKS),
    "settling": lambda: restarts.settling(replace(BOTH, participation=1.0)),
    "sums": lambda: secure_sums.sums(_secagg()),
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
    "tests/protocol/ledgers/test_payments.py",
    "tests/privacy/test_masks.py",
    "tests/identity/test_exchange.py",
    "tests/protocol/ledgers/test_mask_ledger.py",
)
SEALED = ("tests/identity/test_sealing.py", "tests/peer/masking/test_secrets.py")
LIVE = ("tests/peer/masking/test_secrets.py", "tests/peer/attacks/test_security.py", "tests/peer/test_live.py")
LATE = ("tests/peer/masking/test_settling.py", "tests/peer/masking/test_churn.py")
SUMS = ("tests/secagg/test_protocol.py", "tests/secagg/test_live.py")

MUTANTS = [
    Mutant("noise x 0.8", drawn_as(lambda z: z * 0.8), "stacked", "private noise has its deviation"),
    Mutant("noise x 0.97", drawn_as(lambda z: z * 0.97), "stacked", "private noise has its deviation"),
    Mutant(
        "one private noise for rounds 1+2, 3+4, ...", noise_of_two_rounds, "stacked", "private noise is never shared"
    ),
    Mutant("private noise from names and round", from_names("_noise_keys"), "stacked", "private noise is never shared"),
    Mutant("noise rounded to quarters", drawn_as(lambda z: np.rint(z * 4) / 4), "stacked", "private noise is fine-gra"),
    Mutant(
        "noise in float16", drawn_as(lambda z: z.astype(np.float16).astype(float)), "stacked", "private noise is fine-"
    ),
    Mutant("no noise on the last number", without(-1), "stacked", "private noise is everywhere"),
    Mutant("no noise on every 50th number", without(slice(None, None, 50)), "stacked", "private noise is everywhere"),
    Mutant("noise on every second number only", without(slice(1, None, 2)), "stacked", "private noise is everywhere"),
    Mutant("last layer not clipped", last_layer_not_clipped, "clip", "updates are clipped"),
    Mutant("masks from public keys", masks_from_public_keys, "stacked", "masks need a private key", MASKED),
    Mutant(
        "masks used again after going back",
        masks_again_after_going_back,
        "masks",
        "releases after a restart are fresh",
        MASKED,
    ),
    Mutant("masks in a round's first release only", masks_once_a_round, "stacked", "mask is everywhere", MASKED),
    Mutant("normals cut at 3", cut, "stacked", "private noise is normal", STREAM),
    Mutant("secret coin from names and round", from_names("_coins"), "stacked", "sitting out is unforeseeable"),
    Mutant("masks of live peers half as large", half_masks, "masks", "mask has its deviation", MASKED),
    Mutant("secagg without own mask", unmasked(lambda key, own: key not in own), "sums", "own masks are there", SUMS),
    Mutant("half masks are not charged", halves_not_charged, "settling", "half a mask is charged", LATE),
    Mutant("live peers draw all secrets from the seed", seeded_peers, "live", "live peers draw new keys", LIVE),
    Mutant(
        "Laplace noise of the same deviation",
        drawn_as(lambda z: laplace.ppf(ndtr(z), scale=0.5**0.5)),
        "stacked",
        "private noise is normal",
    ),
    Mutant("no noise from round 7 on", noise_ends, "stacked", "private noise is everywhere"),
    Mutant("the second half of a row has the noise of the first", drawn_as(twice), "stacked", "private noise never r"),
    Mutant("noise that is never negative", drawn_as(np.abs), "stacked", "private noise is normal"),
    Mutant("settling releases what was trained", settled_in_the_open, "settling", "settling shows what is", LATE),
    Mutant(
        "secagg without masks of pairs", unmasked(lambda key, own: key in own), "sums", "masks of pairs are there", SUMS
    ),
    Mutant("noise from keys of 16 bits", narrow("_noise_keys", 2), "stacked", "noise never comes twice"),
    Mutant("noise from keys of 48 bits", narrow("_noise_keys", 6), "", ""),
    Mutant("masks from keys of 16 bits", narrow_masks, "", "", MASKED),
    Mutant("the largest number is clipped, not the norm", largest_number_clipped, "clip", "updates are clipped"),
    Mutant(
        "charges are forgotten at a restart",
        restarts_not_charged,
        "live",
        "every release is charged",
        ("tests/report/test_budget.py", "tests/peer/joining/test_resume.py"),
    ),
    Mutant("rows are sealed under a key from the sender's name", sealed_under_names, "", "", SEALED),
    Mutant(
        "averages keep private numbers",
        partial_keeps_private_numbers,
        "",
        "",
        ("tests/algorithms/test_public.py", "tests/algorithms"),
    ),
]
"""All of them."""

REVIEW = 19
"""How many of them, the first ones, are the review's."""

__all__ = ["MUTANTS", "PARTS", "REVIEW", "Mutant", "builds", "torch"]
