"""Credits: whole shares of a value of data, in a signed file that anybody with the data can recompute."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import msgspec
import numpy as np

from p2pfl.core.errors import InputError
from p2pfl.core.files import read_bounded
from p2pfl.core.files import replace as replace_file
from p2pfl.experiment import Plan
from p2pfl.experiment.approval import experiment_digest
from p2pfl.plugins.study.valuation import Valuation, Value
from p2pfl.privacy.keys import Identity, key_text, sign_text, signed_fields, verify_text

DOMAIN = "credits"

COPIED_SHARE = 0.5
"""Least share of the different rows of a peer that another one has as well, for a warning."""

LARGEST_FILE = 1 << 24
"""Most bytes of a file of credits that are read."""


class Credit(msgspec.Struct, frozen=True):
    """Credits of a peer.

    Attributes
    ----------
    peer
        Its name.
    credits
        Whole credits.
    low, high
        95 % interval of the credits that drawn coalitions leave open, the values of the others taken as they are;
        ``None`` where all coalitions were trained.
    value
        By how much its data raise the score.
    alone
        Score of the model of its data alone, on the same test data.
    """

    peer: str
    credits: int
    low: float | None
    high: float | None
    value: float
    alone: float


class SharedRows(msgspec.Struct, frozen=True):
    """Training rows that two peers have in common, to the last bit.

    Attributes
    ----------
    one, other
        Names of the peers.
    rows
        Number of different rows that both have.
    """

    one: str
    other: str
    rows: int


class Credits(msgspec.Struct, frozen=True, kw_only=True):
    """Credits of all peers, with what anybody needs to recompute them.

    Attributes
    ----------
    experiment, test_data
        SHA-256 of the resolved experiment (:func:`p2pfl.experiment.approval.experiment_digest`), and of the test data.
    seed, method, draws, metric
        Seed of the experiment, kind of value, permutations or coalitions that are drawn, and score.
    total
        Sum of the credits.
    together
        Score of the model of all data; a score that is better if smaller counts negative.
    credits
        Credits by peer.
    copies
        Pairs of peers that share at least half of the rows of the smaller one. No value is proof against copies.
    signer, signature
        Public key of who signed all other fields, and the signature in base64; empty if nobody did.
    """

    experiment: str
    test_data: str
    seed: int
    method: str
    draws: int
    metric: str
    total: int
    together: float
    credits: tuple[Credit, ...]
    copies: tuple[SharedRows, ...] = ()
    signer: str = ""
    signature: str = ""

    @property
    def losing(self) -> tuple[str, ...]:
        """Peers whose own model scores higher than that of all data, so that they lose by taking part."""
        return tuple(each.peer for each in self.credits if each.alone > self.together)


def whole_credits(values: Sequence[float], total: int) -> list[int]:
    r"""Return whole shares of positive values by the method of the largest remainder, which add up to the total.

    .. math:: s_i = T \frac{\max(\phi_i, 0)}{\sum_j \max(\phi_j, 0)}

    Each share is rounded down; what is left goes to the largest remainders, of equal ones to the first.

    Raises
    ------
    InputError
        No value is positive.

    Examples
    --------
    >>> whole_credits([0.3, -0.1, 0.3, 0.3], 100)
    [34, 0, 33, 33]
    """
    positive = [max(value, 0.0) for value in values]
    whole = sum(positive)
    if not whole > 0:
        raise InputError("no peer has a positive value, so there is nothing to share credits by; train more rounds")
    shares = [total * value / whole for value in positive]
    credits = [int(share) for share in shares]
    order = sorted(range(len(shares)), key=lambda number: (credits[number] - shares[number], number))
    for number in order[: total - sum(credits)]:
        credits[number] += 1
    return credits


def credits_of(plan: Plan, result: Valuation, *, total: int, draws: int) -> Credits:
    """Return the credits of the peers of an experiment.

    Parameters
    ----------
    plan
        The experiment.
    result
        Values of its peers, with their scores alone.
    total
        Sum of the credits.
    draws
        Permutations or coalitions that the values were asked to draw.

    Raises
    ------
    InputError
        No value is positive.
    """
    values = result.values
    shares = whole_credits([each.value for each in values], total)
    whole = sum(max(each.value, 0.0) for each in values)

    scored = {each.peer: each.alone for each in values if each.alone is not None}

    def credit(each: Value, share: int) -> Credit:
        rest = whole - max(each.value, 0.0)
        low, high = (None if end is None else _share(end, rest) * total for end in (each.low, each.high))
        return Credit(each.peer, share, low, high, each.value, scored[each.peer])

    return Credits(
        experiment=experiment_digest(plan.experiment),
        test_data=_test_digest(plan),
        seed=plan.experiment.seed,
        method=result.method,
        draws=draws,
        metric=result.metric,
        total=total,
        together=result.everybody,
        credits=tuple(credit(each, share) for each, share in zip(values, shares, strict=True)),
        copies=_copies(plan),
    )


def sign_credits(credits: Credits, signer: Identity) -> Credits:
    """Return credits with the signature of an identity."""
    named = msgspec.structs.replace(credits, signer=key_text(signer.public))
    message = signed_fields(msgspec.to_builtins(named))
    return msgspec.structs.replace(named, signature=sign_text(signer, message, domain=DOMAIN))


def write_credits(credits: Credits, path: Path) -> None:
    """Write credits as JSON.

    Raises
    ------
    StorageError
        The file cannot be written.
    """
    replace_file(path, msgspec.json.format(msgspec.json.encode(credits)) + b"\n", mode=0o644)


def read_credits(path: Path) -> Credits:
    """Read credits that somebody has signed.

    Raises
    ------
    InputError
        The file cannot be read, or its signature is not that of the key in it.
    """
    text = read_bounded(path, largest=LARGEST_FILE)
    try:
        credits, message = msgspec.json.decode(text, type=Credits), signed_fields(json.loads(text))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InputError(f"{path} has no credits ({error}); name a file that p2pfl value --credits wrote") from None
    if not verify_text(credits.signer, message, credits.signature, domain=DOMAIN):
        raise InputError(f"{path} has been changed since it was signed; ask the signer for it again")
    return credits


def differences(stated: Credits, computed: Credits) -> list[str]:
    """Return in what credits differ from those computed again, in phrases; none if they are the same.

    Values of models that were trained on another machine agree to rounding, so these are compared by credits.
    """
    names = {
        "experiment": "the experiment",
        "test_data": "the test data",
        "seed": "the seed",
        "metric": "the score",
        "total": "the number of credits",
    }
    phrases = [
        f"{phrase} differs" if phrase != "the test data" else "the test data differ"
        for name, phrase in names.items()
        if getattr(stated, name) != getattr(computed, name)
    ]
    mine = {each.peer: each.credits for each in computed.credits}
    theirs = {each.peer: each.credits for each in stated.credits}
    phrases += [
        f"{peer} has {theirs.get(peer, 'no')} credits there and {mine.get(peer, 'no')} here"
        for peer in sorted(mine.keys() | theirs.keys())
        if mine.get(peer) != theirs.get(peer)
    ]
    return phrases


def _share(value: float, rest: float) -> float:
    """Return the share of a value beside those of the others."""
    positive = max(value, 0.0)
    return positive / (positive + rest) if positive else 0.0


def _copies(plan: Plan) -> tuple[SharedRows, ...]:
    """Return the pairs of peers that have many rows in common."""
    federation = plan.federation
    features, targets = federation.dataset.features.flatten(1).numpy(), federation.dataset.targets.numpy()

    def rows(peer: str) -> set[bytes]:
        return {features[own].tobytes() + targets[own].tobytes() for own in federation.train[peer]}

    different = {peer: rows(peer) for peer in federation.peers}
    pairs = ((one, other, len(different[one] & different[other])) for one, other in combinations(different, 2))
    return tuple(
        SharedRows(one, other, shared)
        for one, other, shared in pairs
        if shared and shared >= COPIED_SHARE * min(len(different[one]), len(different[other]))
    )


def _test_digest(plan: Plan) -> str:
    """Return the SHA-256 of the test samples of all peers, in the order of the data set."""
    parts = {id(part): part for part in plan.federation.test.values()}
    positions = np.unique(np.concatenate([*parts.values()]))
    dataset = plan.federation.dataset
    hashed = hashlib.sha256(str((tuple(dataset.features.shape[1:]), len(positions))).encode())
    for samples in (dataset.features, dataset.targets):
        hashed.update(np.ascontiguousarray(samples.numpy()[positions]).tobytes())
    return hashed.hexdigest()
