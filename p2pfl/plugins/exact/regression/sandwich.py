r"""Standard errors that assume neither the variance of a family nor that samples of a cluster are independent.

With A the information, :math:`s_i` the score of a sample and G clusters g,

.. math:: V = A^{-1} \Bigl(\sum_i s_i s_i^T\Bigr) A^{-1}, \qquad
          V_\text{cluster} = c\, A^{-1} \Bigl(\sum_g u_g u_g^T\Bigr) A^{-1}, \quad u_g = \sum_{i \in g} s_i

The inner matrix is one more total. Factors for small samples are those of R's ``sandwich`` and of Stata: HC1 is
:math:`n / (n - p)` times HC0, and c is :math:`G / (G - 1)`, in families with a dispersion times
:math:`(n - 1) / (n - p)`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, LearningError, ModelError
from p2pfl.learning.additive import Question
from p2pfl.learning.exact_model import Asked, Owns, Part, symmetric
from p2pfl.plugins.exact import sums
from p2pfl.plugins.exact.elementary import product

CLASSICAL, CLUSTER = "classical", "cluster"

ERRORS = (CLASSICAL, "HC0", "HC1", CLUSTER)
"""Kinds of standard errors."""

SHOWN = {
    "HC0": "sums of products of all pairs of features, weighted by the squared residuals",
    "HC1": "sums of products of all pairs of features, weighted by the squared residuals",
    CLUSTER: "sums over the clusters of the products of their scores, and the number of clusters",
}
"""Facts that the totals of some errors show besides those of the model."""


def check_errors(errors: str, cluster: str | None, *, ridge: float) -> None:
    """Refuse options of standard errors that do not go together.

    Raises
    ------
    ModelError
        The kind is unknown, a column of clusters has no effect, or a ridge penalty has no sampling distribution.
    """
    if errors not in ERRORS:
        raise ModelError(f'model.options.errors is "{errors}"; choose from {", ".join(ERRORS)}')
    if cluster is not None and errors != CLUSTER:
        raise ModelError(f'model.options.cluster has no effect with errors = "{errors}"; set errors to "{CLUSTER}"')
    if ridge and errors != CLASSICAL:
        raise ModelError(
            f'model.options.errors = "{errors}" does not work with a ridge, whose errors are those of a posterior; '
            "leave one of the two out"
        )


@dataclass(frozen=True)
class Meat:
    """Inner matrix of a sandwich.

    Attributes
    ----------
    matrix
        ``[p, p]``.
    clusters
        Number of clusters; 0 where samples are independent.
    """

    matrix: Floats
    clusters: int = 0


@dataclass(frozen=True)
class Scores:
    """Scores of the samples under a model, from which the inner matrix of a sandwich follows.

    Parameters
    ----------
    width
        p, the number of coefficients.
    each
        Function that returns the scores of some samples, ``[b, p]``, weights included.
    counts
        Function that returns how many samples each of them stands for, ``[b]``.
    """

    width: int
    each: Callable[[Part, slice], Floats]
    counts: Callable[[Part, slice], Floats]

    def of_samples(self, own: Owns) -> Asked[Meat]:
        """Ask for the sum of the products of the scores of each sample."""
        rows, columns = np.triu_indices(self.width)

        def answer(peer: str) -> Ints:
            part = own(peer).train

            def products(where: slice) -> Floats:
                scores = self.each(part, where)
                return scores[:, rows] * scores[:, columns] * self.counts(part, where)[:, None]

            return sums.summed(len(part), len(rows), products)

        return Meat(symmetric((yield from sums.total(answer, len(rows))), size=self.width))

    def of_clusters(self, own: Owns, groups: Callable[[Part], Ints], *, levels: int) -> Asked[Meat]:
        """Ask for the sum of the products of the scores of each cluster.

        Parameters
        ----------
        own
            Samples of a peer.
        groups
            Function that returns the cluster of each sample of a peer, ``[n]``, from 0.
        levels
            Number of clusters that are known by name, of which no two peers may have the same; 0 for none.

        Raises
        ------
        DataError
            Two peers have samples of the same cluster.
        LearningError
            There is one cluster.
        """
        rows, columns = np.triu_indices(self.width)

        def answer(peer: str) -> Ints:
            part = own(peer).train
            cluster = groups(part)
            number = int(cluster.max(initial=-1)) + 1

            def weighted(where: slice) -> Floats:
                return self.each(part, where) * self.counts(part, where)[:, None]

            added = sums.summed(len(part), self.width, weighted, groups=cluster, number=number)
            scores = sums.numbers(added).reshape(number, self.width)
            sizes = np.bincount(cluster, minlength=number)
            products = sums.summed(number, len(rows), lambda where: scores[where][:, rows] * scores[where][:, columns])
            present = (np.bincount(cluster, minlength=levels) > 0)[:levels]
            return np.concatenate([products, [np.count_nonzero(sizes)], present]).astype(np.int64)

        size = sums.size(len(rows))
        total = yield Question(answer, size=size + 1 + levels)
        if (total[size + 1 :] > 1).any():
            raise DataError(
                "two peers have samples of the same cluster, so that no peer knows its score; name a column in "
                "model.options.cluster whose groups lie within one peer, or leave it out for one cluster a peer"
            )
        clusters = int(total[size])
        if clusters < 2:
            raise LearningError(
                "there is one cluster, so standard errors of clusters do not exist; take part with more, or choose "
                "other model.options.errors"
            )
        return Meat(symmetric(sums.numbers(total[:size]), size=self.width), clusters)


def sandwich(bread: Floats, meat: Meat, *, errors: str, samples: float, used: int, dispersed: bool) -> Floats:
    """Return the covariance of the coefficients, ``[p, p]``.

    Parameters
    ----------
    bread
        Inverse of the information, ``[p, p]``.
    meat
        Inner matrix.
    errors
        Kind of the errors.
    samples, used
        Number of samples, and of coefficients that no others determine.
    dispersed
        True if a dispersion is estimated.
    """
    covariance = product(product(bread, meat.matrix), bread)
    covariance = 0.5 * (covariance + covariance.T)
    if errors == "HC0":
        return covariance
    if errors == "HC1":
        return covariance * (samples / (samples - used))
    factor = meat.clusters / (meat.clusters - 1)
    return covariance * (factor * ((samples - 1) / (samples - used) if dispersed else 1.0))
