r"""Randomised response: labels that differ from the true ones by a known chance, and what corrects for it.

The label holder changes each label into another of the C classes with probability

.. math:: q = \frac{C - 1}{C - 1 + e^\epsilon},

so that whatever follows from the labels is :math:`\epsilon`-differentially private for each of them, against everybody
and in any number of steps. Sums take targets that are right on average in place of the labels,

.. math:: y^* = \frac{\tilde y - q / (C - 1)}{1 - q C / (C - 1)},

and networks the changed labels under a loss that knows of the change. A second draw for the same label would average
the change out, so a draw follows from a secret that is kept with the table, from the person and from the label,
wherever the row is. A label is replaced by a random class at the times of a Poisson process, which is read at a time
that follows from :math:`\epsilon`,

.. math:: t = -\log\Bigl(1 - \frac{q C}{C - 1}\Bigr),

so that what runs of several :math:`\epsilon` show follows from that of the largest one.

References
----------
Warner, Randomized response, Journal of the American Statistical Association 60, 1965; Ghazi et al., Deep learning with
label differential privacy, NeurIPS 2021; Patrini et al., Making deep neural networks robust to label noise, CVPR 2017.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, ModelError
from p2pfl.core.tensors import torch
from p2pfl.data.parties import Parties, Party
from p2pfl.experiment.accounts import beside_file
from p2pfl.plugins.exact.regression.families import TINY, Binomial, Targets
from p2pfl.privacy.keys import KEY_BYTES, Source
from p2pfl.results.spending.account_file import AccountFile


@dataclass(frozen=True)
class RandomisedResponse:
    """Randomised response for labels of some classes.

    Parameters
    ----------
    epsilon
        Privacy of each label.
    classes
        Number of classes C.

    Raises
    ------
    ModelError
        Epsilon is not positive and finite, or there are fewer than two classes.

    Examples
    --------
    >>> round(RandomisedResponse(1.0).changed, 3)
    0.269
    """

    epsilon: float
    classes: int = 2

    def __post_init__(self) -> None:
        if not 0 < self.epsilon < math.inf:
            raise ModelError(
                f"model.options.label_epsilon is {self.epsilon}; set it to a positive number, or leave it out"
            )
        if self.classes < 2:
            raise ModelError(
                "model.options.label_epsilon protects classes, not numbers; leave it out for these targets"
            )

    @property
    def changed(self) -> float:
        """Probability q that a label is changed."""
        others = self.classes - 1
        return others / (others + math.exp(self.epsilon))

    def labels(self, labels: npt.NDArray[Any], keys: Sequence[bytes]) -> Ints:
        """Return labels ``[n]``, each changed into any other with equal chance.

        Parameters
        ----------
        labels
            Classes from 0.
        keys
            Secret bytes for each label, the same whenever it is asked for.

        Raises
        ------
        DataError
            A label is none of the classes.
        """
        classes = self.checked(labels)
        end = -math.log1p(-self.changed * self.classes / (self.classes - 1))
        each = (self._label(label, key, end) for label, key in zip(classes.tolist(), keys, strict=True))
        return np.fromiter(each, np.int64, len(classes))

    def checked(self, labels: npt.NDArray[Any]) -> Ints:
        """Return labels as whole numbers.

        Raises
        ------
        DataError
            A label is none of the classes.
        """
        classes = np.asarray(labels, np.int64)
        if ((classes < 0) | (classes >= self.classes)).any() or (classes != labels).any():
            raise DataError(
                f"a label is none of {self.classes} classes, and numbers cannot be changed; leave out "
                "model.options.label_epsilon"
            )
        return classes

    def _label(self, label: int, key: bytes, end: float) -> int:
        """Return what has become of a label at a time."""
        now = 0.0
        for event in count():
            digest = hashlib.blake2b(event.to_bytes(8, "little"), key=key, digest_size=16).digest()
            now -= math.log1p(-_share(digest[:8]))
            if now > end:
                break
            label = int(_share(digest[8:]) * self.classes)
        return label

    def targets(self, changed: Ints) -> Floats:
        """Return targets of all classes that are right on average, ``[n, C]``.

        Examples
        --------
        >>> RandomisedResponse(1.0).targets(np.array([0, 1]))[:, 1].round(2).tolist()
        [-0.58, 1.58]
        """
        others, share = self.classes - 1, self.changed
        hot = changed[:, None] == np.arange(self.classes)
        return np.asarray((hot - share / others) / (1 - share * self.classes / others))

    def probabilities(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Return the probabilities of changed labels from those of the true ones, ``[n, C]``: forward correction."""
        share, others = self.changed, self.classes - 1
        return share / others + (1 - share * self.classes / others) * probabilities


def changed_labels(parties: Parties, response: RandomisedResponse, source: Source) -> Ints:
    """Return the labels of the table of the label holder as all models see them, ``[n]``.

    A draw depends on the first value of a key that names the row, in order of the names of keys, and on the class and
    the names of all classes: neither on the order of the rows nor on that of keys and classes. Rows without a value are
    told apart by their columns.

    Parameters
    ----------
    parties
        The parties, among them the label holder.
    response
        How labels are changed.
    source
        Source of the secret of columns that are dealt out for a trial; that of a file follows from the key of its
        account.

    Raises
    ------
    DataError
        A label is none of the classes.
    """
    party = parties.party(parties.label)
    names = [*map(str, party.description.classes or range(response.classes))]
    order = sorted(range(len(names)), key=names.__getitem__)
    ranks = np.argsort(order)[response.checked(party.targets)]
    secret, classes, seen = _secret(party, source, peer=parties.label), sorted(names), Counter[Any]()
    named, keys = sorted(zip(parties.keys, party.keys, strict=True), key=itemgetter(0)), []
    for row, rank in enumerate(ranks.tolist()):
        values = ((name, column[row]) for name, column in named if column[row] is not None)
        who = next(values, ("", party.features[row].tobytes())), rank
        text = repr((*who, seen[who], classes)).encode()
        keys.append(hashlib.blake2b(text, key=secret, digest_size=KEY_BYTES).digest())
        seen[who] += 1
    return np.asarray(np.array(order)[response.labels(ranks, keys)])


def _secret(party: Party, source: Source, *, peer: str) -> bytes:
    """Return 32 secret bytes for the labels of a table: the same ones whenever they are asked for, if it is a file."""
    if party.file is None:
        return source.bytes(KEY_BYTES, purpose="randomised labels", peer=peer)
    key = AccountFile(beside_file(party.file)).key()
    return hashlib.blake2b(key=key, digest_size=KEY_BYTES, person=b"p2pfl labels").digest()


def _share(data: bytes) -> float:
    """Return a uniform number from 0 to below 1."""
    return (int.from_bytes(data, "little") >> 11) * 2.0**-53


@dataclass(frozen=True)
class RandomisedBinomial(Binomial):
    """Two classes whose targets are right on average under randomised response.

    Parameters
    ----------
    response
        How labels are changed.
    """

    response: RandomisedResponse

    def valid(self, targets: Targets) -> str:
        """Return what is wrong with targets."""
        allowed = self.response.targets(np.array([0, 1]))[:, 1]
        close = np.isclose(targets[:, None], allowed, rtol=1e-9, atol=0)
        return "" if close.any(axis=1).all() else "a number that is no changed class"

    def deviances(self, targets: Targets, means: Floats) -> Floats:
        """Return numbers whose expectation is twice the log loss of the true classes."""
        likely, rest = np.log(np.maximum(means[:, 0], TINY)), np.log(np.maximum(1 - means[:, 0], TINY))
        return np.asarray(-2 * (targets * likely + (1 - targets) * rest))

    def target_variances(self, means: Floats) -> Floats:
        """Return the variances of targets, ``[n, 1]``, larger than those of classes by the change."""
        share = self.response.changed
        seen = share + (1 - 2 * share) * means
        return np.asarray(seen * (1 - seen) / (1 - 2 * share) ** 2)
