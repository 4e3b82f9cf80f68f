r"""Randomised response: labels that differ from the true ones by a known chance, and what corrects for it.

The label holder changes each label into another of the C classes with probability

.. math:: q = \frac{C - 1}{C - 1 + e^\epsilon},

so that whatever follows from the labels is :math:`\epsilon`-differentially private for each of them, against everybody
and in any number of steps. Sums take targets that are right on average in place of the labels,

.. math:: y^* = \frac{\tilde y - q / (C - 1)}{1 - q C / (C - 1)},

and networks the changed labels under a loss that knows of the change. A second draw for the same labels would average
the change out, so draws follow from a secret that is kept with the table.

References
----------
Warner, Randomized response, Journal of the American Statistical Association 60, 1965; Ghazi et al., Deep learning with
label differential privacy, NeurIPS 2021; Patrini et al., Making deep neural networks robust to label noise, CVPR 2017.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, ModelError
from p2pfl.data.parties import Party
from p2pfl.experiment.accounts import beside_file
from p2pfl.plugins.exact.regression.families import TINY, Binomial, Targets
from p2pfl.plugins.vertical.ring import Words, keystream
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

    def labels(self, labels: npt.NDArray[Any], secret: bytes) -> Ints:
        """Return labels ``[n]``, each changed into any other with equal chance.

        Parameters
        ----------
        labels
            Classes from 0.
        secret
            32 secret bytes, the same whenever the labels of a table are asked for, in the order of the table.

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
        purpose = f"labels of {self.classes} classes under epsilon {self.epsilon!r}"
        coins = keystream(secret, purpose, (len(classes), 2))
        changed = _shares(coins[:, 0]) < self.changed
        other = np.minimum((_shares(coins[:, 1]) * (self.classes - 1)).astype(np.int64), self.classes - 2)
        return np.where(changed, (classes + 1 + other) % self.classes, classes)

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


def secret_of_labels(party: Party, source: Source, *, peer: str) -> bytes:
    """Return 32 secret bytes for the labels of a table: the same ones whenever it is asked, if it is a file.

    Parameters
    ----------
    party
        Table of the label holder. The secret of a file follows from the key of its account, beside it.
    source, peer
        Source of the secret of columns that are dealt out for a trial, and name of the label holder.
    """
    if party.file is None:
        return source.bytes(KEY_BYTES, purpose="randomised labels", peer=peer)
    key = AccountFile(beside_file(party.file)).key()
    return hashlib.blake2b(key=key, digest_size=KEY_BYTES, person=b"p2pfl labels").digest()


def _shares(numbers: Words) -> Floats:
    """Return uniform numbers from 0 to below 1."""
    return (numbers >> np.uint64(11)).astype(np.float64) * 2.0**-53


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
