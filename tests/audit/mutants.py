"""Builds that are broken on purpose, which part of the audit must notice each, and which tests look near it.

Some are those of security reviews, the others are ours. ``python -m benchmarks.audit`` prints what the audit and the
tests make of each.
"""

from __future__ import annotations

import hashlib
import importlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import builds
import numpy as np
import torch
from scipy.special import ndtr
from scipy.stats import laplace
from sklearn import datasets

from p2pfl import files
from p2pfl.algorithms import averaging
from p2pfl.audit import accounts, claims, noise_claims, total_attacks, training
from p2pfl.audit.claims import ExactClaim
from p2pfl.audit.live import restarts, secure_sums
from p2pfl.exact import RandomBoosting
from p2pfl.experiment import plan, protection, read
from p2pfl.identity import SecretSource, SeededSource, SenderKey, exchange
from p2pfl.learning.example_private import ExamplePrivateLearner
from p2pfl.neighbourhood import Public as Known
from p2pfl.neighbourhood import derived
from p2pfl.peer.masking import paying
from p2pfl.peer.masking.paying import Republished
from p2pfl.peer.masking.settling import Cover
from p2pfl.privacy import PrivateNeighbourhood, Settings, masks, totals
from p2pfl.privacy import release as release_
from p2pfl.privacy.accounting import accountant, examples, noisy_totals, spending
from p2pfl.protocol.ledgers import payments
from p2pfl.protocol.membership import membership
from p2pfl.protocol.wire import envelope
from p2pfl.report.spending import sampling
from p2pfl.report.spending.meter import Meter
from p2pfl.secagg import protocol as secagg
from p2pfl.topology import metropolis, ring

BOTH = Settings(clip=1.0, noise=1.0, mask=4.0, participation=0.5)
MASKS = Settings(mask=4.0)
LAYERS = Settings(clip=1.0, noise=1.0, layers=(900, 30, 7))
ROUNDS = 8

RING = {"topology": {"kind": "ring", "peers": 8}, "data": {"name": "wine"}, "model": {"name": "linear"}}
RING |= {"learning": {"device": "cpu"}}
COMPLETE = RING | {"topology": {"kind": "complete", "peers": 5}}
ACCOUNTED = (
    RING | {"privacy": {"mode": "pairwise", "clip": 1.0, "noise": 1.0, "mask": 4.0}},
    COMPLETE | {"rounds": 6, "privacy": {"mode": "pairwise", "epsilon": 8.0, "adjacency": "replace", "colluders": 2}},
    COMPLETE | {"rounds": 6, "privacy": {"mode": "secagg", "noise": 1.0, "clip": 1.0, "colluders": 2}},
    RING | {"privacy": {"mode": "independent", "clip": 1.0, "noise": 2.0, "participation": 0.5}},
)
SAMPLED = RING | {"rounds": 3, "learning": {"device": "cpu", "example_noise": 1.0, "example_clip": 1.0, "batch": 8}}
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
        width = release_.BLOCK // len(keys)
        drawn = [sampler.window(keys, span).copy() for span in release_.spans(size, width)]
        noise = torch.from_numpy(np.concatenate(drawn, axis=1) / unit)
        kept, self._settings = self._settings, replace(self._settings, noise=0.0)
        try:
            return real(self, replace(update, rows=update.rows.double() + noise), attempt)
        finally:
            self._settings = kept

    patch.setattr(PrivateNeighbourhood, "_hide", hide)


def noise_is_even(patch):
    """Private noise is on every second point of the grid."""

    class Even(release_.NoiseSampler):
        def __init__(self, deviation):
            super().__init__(deviation / 2)

        def window(self, keys, span):
            return super().window(keys, span) * 2

    patch.setattr(release_, "NoiseSampler", Even)


def clipped_softly(most):
    """Updates of up to ``most`` clips pass."""

    def build(patch):
        real = release_._Update.factors

        def factors(self, group):
            found = real(self, group)
            return np.where(found > 1 / most, 1.0, found)

        patch.setattr(release_._Update, "factors", factors)

    return build


def epochs_without(**left_out):
    """Epochs of edges do not name some parts of an announcement."""

    def build(patch):
        real = exchange.epoch_of

        def epoch(one, other):
            return real(one._replace(**left_out), other._replace(**left_out))

        for module in (
            "p2pfl.identity.exchange",
            "p2pfl.identity",
            "p2pfl.privacy.masks",
            "p2pfl.protocol.wire.envelope",
            "p2pfl.protocol.membership.membership",
        ):
            patch.setattr(f"{module}.epoch_of", epoch)

    return build


def total_keys_without(**left_out):
    """Keys of masks of totals do not name some parts of the slot."""

    def build(patch):
        real = totals.TotalMasks.keys

        def keys(self, peer, *, slot, participants):
            return real(self, peer, slot=slot._replace(**left_out), participants=participants)

        patch.setattr(totals.TotalMasks, "keys", keys)

    return build


def total_keys_without_participants(patch):
    patch.setattr(totals, "_digest", lambda _participants: "all")


def narrow_total_masks(patch):
    """Masks of totals have 40 bits in a ring of 64."""
    real = totals.mask

    def mask(values, *, plus, minus):
        for sign, keys in ((1, plus), (-1, minus)):
            for key in keys:
                drawn = np.zeros_like(values)
                real(drawn, plus=[key], minus=[])
                drawn >>= np.array(24 if values.dtype.itemsize == 8 else 12, values.dtype)
                np.add(values, drawn if sign > 0 else np.zeros_like(drawn) - drawn, out=values)

    patch.setattr(totals, "mask", mask)


def total_masks_repeat(patch):
    """The second half of a total has the masks of the first."""
    real = totals.mask

    def mask(values, *, plus, minus):
        half = len(values) // 2
        for part in (values[:half], values[half:]):
            real(part, plus=plus, minus=minus)

    patch.setattr(totals, "mask", mask)


def one_sender_key(patch):
    """The sender key follows from the exchange key, which incarnations share."""
    real = envelope.Envelope.__init__

    def begin(self, *given):
        real(self, *given)
        self.sender = SenderKey(hashlib.sha256(self.exchange._private.private_bytes_raw()).digest())

    patch.setattr(envelope.Envelope, "__init__", begin)


def handed_over_without_receiver(patch):
    """The keys that hand over sender keys do not name the receiver, so both directions have one key."""
    real = envelope.Envelope._edge

    def edge(self, *given, receiver, **how):
        del receiver
        return real(self, *given, receiver="", **how)

    patch.setattr(envelope.Envelope, "_edge", edge)


def unsigned_unless_up(patch):
    """Goodbyes and wills need no signature."""
    real = membership.Membership._doubt
    patch.setattr(
        membership.Membership,
        "_doubt",
        lambda self, said, trust: real(self, said, trust) if said.status == "up" else None,
    )


def accounted_at(**changes):
    """DP-SGD is accounted with other numbers than those of training."""

    def build(patch):
        real = sampling.Sampling
        made = lambda noise, rate, steps: real(  # noqa: E731
            noise * changes.get("noise", 1), rate * changes.get("rate", 1), int(steps * changes.get("steps", 1))
        )
        patch.setattr(sampling, "Sampling", made)
        patch.setattr("p2pfl.experiment.resolved.Sampling", made)

    return build


def half_of_the_steps(patch):
    """Epsilon of samples is that of half of the steps."""
    real = examples.epsilon
    patch.setattr(
        examples,
        "epsilon",
        lambda noise, *, rate, steps, delta: real(noise, rate=rate, steps=max(1, steps // 2), delta=delta),
    )


def batch_is_clipped(patch):
    """DP-SGD clips the mean of a batch, not the gradient of each sample."""
    real = ExamplePrivateLearner.clipped

    def clipped(self, parts, chosen):
        kept, self.clip = self.clip, math.inf
        try:
            loss, total = real(self, parts, chosen)
        finally:
            self.clip = kept
        length = float(total.norm()) / max(1, len(chosen))
        return loss, total * min(1.0, self.clip / max(length, 1e-300))

    patch.setattr(ExamplePrivateLearner, "clipped", clipped)


def step_noise(change):
    """Change the noise of a step: ``change(noise, step)``, where ``noise(step)`` returns that of any step."""

    def build(patch):
        real, kept = ExamplePrivateLearner.hidden, {}

        def hidden(self, total, *, peer, round, step):
            def noise(at):
                drawn = real(self, torch.zeros_like(total), peer=peer, round=round, step=at)
                found = kept.setdefault((id(self), peer, round, at), (self, drawn))  # also from a source without memory
                return found[1]

            return total + change(noise, step)

        patch.setattr(ExamplePrivateLearner, "hidden", hidden)

    return build


def batches_of_equal_size(patch):
    """Batches are drawn without replacement, so all have the same size."""

    def sampled(self, peer, *, round, step):
        part, rate = self.federation.train[peer], self.cost(peer)[0]
        order = np.random.default_rng([round, step]).permutation(len(part))
        return part[np.sort(order[: int(rate * len(part))])]

    patch.setattr(ExamplePrivateLearner, "sampled", sampled)


def one_batch_for_all_rounds(patch):
    """All rounds have the batches of the first."""
    real, kept = ExamplePrivateLearner.sampled, {}

    def sampled(self, peer, *, round, step):
        return kept.setdefault((id(self), peer, step), (self, real(self, peer, round=round, step=step)))[1]

    patch.setattr(ExamplePrivateLearner, "sampled", sampled)


def first_samples_always_join(patch):
    """The first sample of a peer is in every batch."""
    real = ExamplePrivateLearner.sampled

    def sampled(self, peer, *, round, step):
        return np.union1d(real(self, peer, round=round, step=step), self.federation.train[peer][:1])

    patch.setattr(ExamplePrivateLearner, "sampled", sampled)


def divided_by_what_joined(patch):
    """A step divides by the size of its batch, which is secret, instead of the mean one."""
    real = ExamplePrivateLearner.hidden

    def hidden(self, total, *, peer, round, step):
        mean = self.cost(peer)[0] * len(self.federation.train[peer])
        joined = max(1, len(self.sampled(peer, round=round, step=step)))
        return real(self, total, peer=peer, round=round, step=step) * (mean / joined)

    patch.setattr(ExamplePrivateLearner, "hidden", hidden)


def colluders_count(patch):
    """The noise of colluders counts in totals."""
    for module in ("p2pfl.experiment.protection.guarantee_of_total", "p2pfl.privacy.accounting.noisy_totals.guarantee"):
        real = noisy_totals.guarantee

        def guarantee(peers, *, noise, colluders, adjacency="zero-out", real=real):
            without = real(peers, noise=noise, colluders=0, adjacency=adjacency)
            return replace(real(peers, noise=noise, colluders=colluders, adjacency=adjacency), mu=without.mu)

        patch.setattr(module, guarantee)
    real_noise = noisy_totals.calibrated
    patch.setattr(
        "p2pfl.experiment.parts.masks_and_noise.calibrated_total",
        lambda mu, *, peers, colluders, adjacency="zero-out": real_noise(
            mu, peers=peers, colluders=0 * colluders, adjacency=adjacency
        ),
    )


def boosting_declares_half(patch):
    real = RandomBoosting.change.fget
    patch.setattr(RandomBoosting, "change", property(lambda self: real(self) / 2))


def boosting_unclipped(patch):
    """Random boosting declares clipped derivatives and does not clip them."""
    steepest = RandomBoosting.steepest.fget

    def declared(self):
        curves = 1 / 16 if self.columns == 1 else 1 / 4
        return math.sqrt(steepest(self) ** 2 + curves / 4) + math.sqrt(2 * self.columns) * 2.0**-21

    patch.setattr(RandomBoosting, "change", property(declared))
    patch.setattr(RandomBoosting, "steepest", property(lambda _self: 1e9))


def half_corrections(patch):
    """A correction counts half."""
    real = Meter._write

    def write(self, round, cost, *, check=None):
        real(self, round, cost if check is not None else replace(cost, mu=cost.mu / 2), check=check)

    patch.setattr(Meter, "_write", write)


def totals_not_charged(patch):
    """Totals are not charged."""
    real = PrivateNeighbourhood.total

    async def total(self, contribution, **how):
        kept, self._charge = self._charge, None
        try:
            return await real(self, contribution, **how)
        finally:
            self._charge = kept

    patch.setattr(PrivateNeighbourhood, "total", total)


def replacements_count_half(patch):
    """Replacing an update by another counts as leaving it out."""
    patch.setitem(accountant._CHANGE, "replace", 1.0)


def first_colluder_is_honest(patch):
    """The accountant overlooks that colluders know their masks with others."""
    patch.setattr(
        "p2pfl.privacy.accounting.leakage.NoiseCover.honest",
        lambda self, _colluders: np.arange(len(self.peers), dtype=np.int64),
    )


def half_of_the_rounds(patch):
    """Half of the rounds are stated."""
    real = protection.Protection.spent
    patch.setattr(
        protection.Protection,
        "spent",
        lambda self, costs: real(self, {cost: max(1, count // 2) for cost, count in costs.items()}),
    )


def larger_delta(patch):
    """Epsilon is stated at ten times delta."""
    real = spending.divergence.epsilon
    patch.setattr(spending.divergence, "epsilon", lambda mu, *, delta: real(mu, delta=min(0.5, 10 * delta)))


def health_says_scores(patch):
    module = importlib.import_module("p2pfl.peer.telemetry")
    real = module.encoded
    patch.setattr(module, "encoded", lambda entry, **_: real(entry, level="scores"))


def files_for_all(patch):
    real = files.Drive.write
    patch.setattr(files.Drive, "write", lambda self, path, data, *, mode: real(self, path, data, mode=mode | 0o044))


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


def _planned(table):
    return plan(read(table))  # not kept: a mutant may change it


def _accounted():
    """Check the accounting in four modes."""
    found = []
    for table in ACCOUNTED:
        resolved = _planned(table)
        found += accounts.accounts(resolved, stated=resolved.protection.observers())
    return found


PARTS: dict[str, Callable[[], list[ExactClaim]]] = {
    "clip": lambda: _claimed(LAYERS) + _claimed(BOTH),
    "stacked": lambda: noise_claims.stacked(BOTH, fresh=_fresh),
    "live": lambda: _released(BOTH),
    "masks": lambda: _released(MASKS),
    "settling": lambda: restarts.settling(replace(BOTH, participation=1.0)),
    "sums": lambda: secure_sums.sums(_secagg()),
    "exact totals": lambda: total_attacks.totals(_planned(EXACT), fresh=_fresh, trials=1000),
    "totals": lambda: total_attacks.totals(_planned(BOOSTED), fresh=_fresh, trials=6000),
    "training": lambda: training.training(_planned(SAMPLED), fresh=_fresh),
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
    "tests/protocol/ledgers/test_payments.py",
    "tests/privacy/test_masks.py",
    "tests/identity/test_exchange.py",
    "tests/protocol/ledgers/test_mask_ledger.py",
)
SEALED = ("tests/identity/test_sealing.py", "tests/peer/masking/test_secrets.py")
LIVE = ("tests/peer/masking/test_secrets.py", "tests/peer/attacks/test_security.py", "tests/peer/test_live.py")
LATE = ("tests/peer/masking/test_settling.py", "tests/peer/masking/test_churn.py")
SUMS = ("tests/secagg/test_protocol.py", "tests/secagg/test_live.py")

EPOCHS = ("tests/identity/test_exchange.py", *LIVE)
ENVELOPE = ("tests/protocol/wire/test_envelope.py", *SEALED)
TOTALS = ("tests/privacy/test_totals.py", "tests/protocol/totals")
BOOSTING = (
    "tests/exact/trees/test_random_boosting.py",
    "tests/privacy/test_totals.py",
)
SAMPLES = ("tests/learning/test_example_private.py",)
METER = ("tests/report/test_meter.py",)
ACCOUNTS = ("tests/privacy/test_accountant.py", "tests/privacy/test_leakage.py", "tests/experiment/test_protection.py")

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
    Mutant(
        "rows are sealed under a key from the sender's name",
        sealed_under_names,
        "live",
        "no key and nonce encrypt twice",
        SEALED,
    ),
    Mutant(
        "averages keep private numbers",
        partial_keeps_private_numbers,
        "",
        "",
        ("tests/algorithms/test_public.py", "tests/algorithms"),
    ),
    Mutant("noise before the clip", noise_before_clip, "clip", "updates are clipped"),
    Mutant("noise on every second point of the grid", noise_is_even, "stacked", "private noise is fine-grained"),
    Mutant("updates up to 1.5 clips pass", clipped_softly(1.5), "clip", "updates are clipped"),
    Mutant("epochs without nonces", epochs_without(nonce=b""), "live", "no key and nonce encrypt twice", EPOCHS),
    Mutant("one key for all totals of a round", total_keys_without(number=0), "exact totals", "no two totals", TOTALS),
    Mutant("masks of totals have 40 of 64 bits", narrow_total_masks, "exact totals", "masks of totals are", TOTALS),
    Mutant("one sender key for all incarnations", one_sender_key, "live", "no key and nonce encrypt twice", ENVELOPE),
    Mutant("wills and goodbyes need no signature", unsigned_unless_up, "", "", ("tests/protocol/membership",)),
    Mutant("DP-SGD is accounted at half of its rate", accounted_at(rate=0.5), "training", "steps are acc", SAMPLES),
    Mutant("DP-SGD clips the batch, not the sample", batch_is_clipped, "training", "gradients of samples are", SAMPLES),
    Mutant("noise of colluders counts in totals", colluders_count, "totals", "noise of a total", BOOSTING),
    Mutant("random boosting declares half of the change", boosting_declares_half, "totals", "what a sample", BOOSTING),
    Mutant("random boosting does not clip", boosting_unclipped, "totals", "what a sample changes", BOOSTING),
    Mutant("a correction counts half", half_corrections, "accounting", "corrections are charged", METER),
    Mutant("telemetry of health says scores", health_says_scores, "", "", ("tests/watch/test_live.py",)),
    Mutant("private files are readable by all", files_for_all, "", "", ("tests/peer/storage/test_checkpoint.py",)),
    Mutant("updates up to 1.05 clips pass", clipped_softly(1.05), "clip", "updates are clipped"),
    Mutant("epochs without incarnations or nonces", epochs_without(nonce=b"", incarnation=1), "live", "rel", EPOCHS),
    Mutant(
        "keys handed over both ways are under one key",
        handed_over_without_receiver,
        "live",
        "no key and nonce",
        ENVELOPE,
    ),
    Mutant("masks of totals return in each attempt", total_keys_without(attempt=0), "exact totals", "no two", TOTALS),
    Mutant("masks of totals return in each round", total_keys_without(round=0), "exact totals", "no two t", TOTALS),
    Mutant(
        "masks of totals without participants",
        total_keys_without_participants,
        "exact totals",
        "keys of totals are of",
        TOTALS,
    ),
    Mutant("masks of a total repeat", total_masks_repeat, "exact totals", "masks of a total never repeat", TOTALS),
    Mutant("totals are not charged", totals_not_charged, "totals", "every total is charged", BOOSTING),
    Mutant("DP-SGD is accounted at twice its noise", accounted_at(noise=2.0), "training", "steps are acc", SAMPLES),
    Mutant("DP-SGD is accounted at half of its steps", accounted_at(steps=0.5), "training", "steps are acc", SAMPLES),
    Mutant("epsilon of half of the steps of DP-SGD", half_of_the_steps, "training", "epsilon of samples", SAMPLES),
    Mutant(
        "DP-SGD with half of its noise", step_noise(lambda noise, at: noise(at) / 2), "training", "noise of", SAMPLES
    ),
    Mutant(
        "the steps of a round share noise", step_noise(lambda noise, _: noise(0)), "training", "a round has", SAMPLES
    ),
    Mutant(
        "noise in the first step of a round alone",
        step_noise(lambda noise, at: noise(at) * (at == 0)),
        "training",
        "a round has its steps",
        SAMPLES,
    ),
    Mutant("batches of equal size", batches_of_equal_size, "training", "sizes of batches vary", SAMPLES),
    Mutant("one batch for all rounds", one_batch_for_all_rounds, "training", "each sample has its rate", SAMPLES),
    Mutant("one sample is in every batch", first_samples_always_join, "training", "each sample has its", SAMPLES),
    Mutant("a step divides by the size of its batch", divided_by_what_joined, "training", "gradients", SAMPLES),
    Mutant("replacing counts as leaving out", replacements_count_half, "accounting", "mu of", ACCOUNTS),
    Mutant("colluders keep their masks secret", first_colluder_is_honest, "accounting", "mu of", ACCOUNTS),
    Mutant("epsilon of half of the rounds", half_of_the_rounds, "accounting", "epsilon of all rounds", ACCOUNTS),
    Mutant("epsilon at ten times delta", larger_delta, "accounting", "epsilon of all rounds", ACCOUNTS),
]
"""All of them."""

HEADINGS = {19: "of our own", 32: "of the third review", 48: "of our own, after it"}
"""Whose the mutants from each number on are; the first ones are those of the first review."""

__all__ = ["HEADINGS", "MUTANTS", "PARTS", "Mutant", "builds", "torch"]
