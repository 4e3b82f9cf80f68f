r"""Conversion of guarantees: from :math:`\mu` to :math:`(\varepsilon, \delta)` and back.

A release is :math:`\mu`-GDP if telling two neighbouring inputs apart is never easier than telling
:math:`N(0, 1)` from :math:`N(\mu, 1)`. Gaussian noise attains this exactly, and then

.. math:: \delta(\varepsilon) = \Phi(\mu/2 - \varepsilon/\mu) - e^\varepsilon \Phi(-\mu/2 - \varepsilon/\mu)

Every conversion is dp-accounting's, the extra ``privacy``. A factor 2 of the adjacency belongs into
:math:`\mu` before it comes here.

References
----------
J. Dong, A. Roth, W. Su, "Gaussian differential privacy", J. R. Statist. Soc. B 84, 2022.
B. Balle, Y.-X. Wang, "Improving the Gaussian mechanism for differential privacy", ICML 2018.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # imports scipy.special when that is first used, which takes 3 MiB

from p2pfl.core.errors import InputError


def epsilon(mu: float, *, delta: float) -> float:
    r"""Return the smallest :math:`\varepsilon` for which :math:`\mu`-GDP gives :math:`(\varepsilon, \delta)`-DP.

    Raises
    ------
    InputError
        ``mu`` negative, ``delta`` not between 0 and 1, or the extra ``privacy`` is not installed.

    Examples
    --------
    >>> round(epsilon(1.0, delta=1e-5), 6)
    4.377178
    """
    _check_mu(mu)
    _check_delta(delta)
    if mu == 0 or math.isinf(mu):
        return mu
    with np.errstate(divide="ignore"):  # it takes the logarithm of what is left of nothing, where mu is huge
        return float(_library().get_epsilon_gaussian(1 / mu, delta))


def mu(epsilon: float, *, delta: float) -> float:
    r"""Return the largest :math:`\mu` that still gives :math:`(\varepsilon, \delta)`-DP: the inverse of that.

    Raises
    ------
    InputError
        ``epsilon`` negative, ``delta`` not between 0 and 1, or the extra ``privacy`` is not installed.

    Examples
    --------
    >>> round(mu(1.0, delta=1e-5), 6)
    0.268051
    """
    _check_epsilon(epsilon)
    _check_delta(delta)
    if math.isinf(epsilon):
        return epsilon
    with np.errstate(divide="ignore"):  # as above
        return 1 / float(_library().get_sigma_gaussian(epsilon, delta))


def mixture_epsilon(rounds: Mapping[tuple[float, float], int], *, delta: float, interval: float = 1e-3) -> float:
    r"""Return :math:`\varepsilon` of rounds of several kinds, which a peer joins in secret with some probability.

    Every round the adversary has to distinguish :math:`(1 - q) N(0, 1) + q N(\mu, 1)` from :math:`N(0, 1)`.
    By privacy loss distributions (PLD), which round up. Who takes part must be drawn independently
    in every round and stay secret; those who sit out release noise and masks all the same.

    Parameters
    ----------
    rounds
        How many there were of each positive ``mu`` and probability of taking part in secret.
    interval
        Of the grid on which losses are counted, rounded up: a finer one takes longer and gives a little less.

    Raises
    ------
    InputError
        The extra ``privacy`` is not installed.

    Examples
    --------
    >>> round(mixture_epsilon({(1.0, 0.01): 1000, (0.5, 1.0): 1}, delta=1e-5), 2)
    2.76
    """
    if any(math.isinf(mu) for mu, _ in rounds):
        return math.inf
    library = _library()
    # Zero-out: with REPLACE_ONE this accountant would double the sensitivity by itself.
    accountant = library.pld.PLDAccountant(library.NeighboringRelation.REPLACE_SPECIAL, interval)
    _compose(library, accountant, rounds)
    return float(accountant.get_epsilon(delta))


def renyi(rounds: Mapping[tuple[float, float], int], *, delta: float) -> float:
    r"""Return a looser :math:`\varepsilon` of rounds, at once and for any number of them, by Rényi divergences.

    Parameters
    ----------
    rounds, delta
        As in :func:`mixture_epsilon`.

    Raises
    ------
    InputError
        The extra ``privacy`` is not installed.

    Examples
    --------
    >>> round(renyi({(1.0, 0.01): 1000}, delta=1e-5), 3)
    2.108
    """
    library = _library()
    accountant = library.rdp.RdpAccountant(orders=_ORDERS)
    _compose(library, accountant, rounds)
    with np.errstate(all="ignore"):  # of log 0
        epsilon = float(accountant.get_epsilon(delta))
    return math.inf if math.isnan(epsilon) else epsilon


_ORDERS = (*range(2, 64), 128, 256)
"""Orders of Rényi divergences: whole numbers, whose series are finite."""


@dataclass(frozen=True)
class Ceilings:
    """Upper bounds on the success of any attack on a release, whatever else it knows.

    Parameters
    ----------
    auc
        Area under its ROC curve.
    accuracy
        Balanced accuracy.
    tpr
        True positives at false positive rate ``fpr``.
    """

    auc: float
    accuracy: float
    tpr: float
    fpr: float


def ceilings(mu: float, *, fpr: float = 0.01) -> Ceilings:
    r"""Return :math:`\Phi(\mu/\sqrt2)`, :math:`\Phi(\mu/2)` and :math:`\Phi(\Phi^{-1}(\text{fpr}) + \mu)`.

    Raises
    ------
    InputError
        ``mu`` negative or ``fpr`` not between 0 and 1.

    Examples
    --------
    >>> round(ceilings(1.0).auc, 4), round(ceilings(1.0).accuracy, 4), round(ceilings(1.0).tpr, 4)
    (0.7602, 0.6915, 0.0924)
    """
    _check_mu(mu)
    if not 0 < fpr < 1:
        raise InputError(f"the false positive rate is {fpr}, but must be between 0 and 1; 0.01 is usual")
    tpr = float(scipy.special.ndtr(scipy.special.ndtri(fpr) + mu))
    return Ceilings(
        auc=float(scipy.special.ndtr(mu / math.sqrt(2))), accuracy=float(scipy.special.ndtr(mu / 2)), tpr=tpr, fpr=fpr
    )


def _compose(library: Any, accountant: Any, rounds: Mapping[tuple[float, float], int]) -> None:
    for (mu, probability), count in rounds.items():
        event = library.GaussianDpEvent(1 / mu)
        accountant.compose(event if probability == 1 else library.PoissonSampledDpEvent(probability, event), count)


def _library() -> Any:
    try:
        import dp_accounting  # type: ignore[import-untyped,unused-ignore] # noqa: PLC0415 (an extra)
    except ImportError as error:
        raise InputError(
            'dp-accounting, which converts guarantees, is not installed; run pip install "p2pfl-mqtt[privacy]"'
        ) from error
    return dp_accounting


def _check_mu(mu: float) -> None:
    if not mu >= 0:
        raise InputError(f"mu is {mu}, but must be at least 0; change it")


def _check_epsilon(epsilon: float) -> None:
    if not epsilon >= 0:
        raise InputError(f"epsilon is {epsilon}, but must be at least 0; change it")


def _check_delta(delta: float) -> None:
    if not 0 < delta < 1:
        raise InputError(f"delta is {delta}, not between 0 and 1; well below one over the number of peers is usual")
