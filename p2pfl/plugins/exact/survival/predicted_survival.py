"""Predicted survival of profiles under a Cox regression: its baseline hazard, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import InputError
from p2pfl.learning.exact_model import Tensors
from p2pfl.plugins.exact.survival.cox import Cox
from p2pfl.plugins.exact.survival.curves import BANDS, band, time_of_share
from p2pfl.plugins.exact.survival.grid import round_times


@dataclass(frozen=True, eq=False)
class PredictedCurve:
    """Survival of a profile at the times of events of its stratum.

    Attributes
    ----------
    times, hazard
        Times of events, and the cumulative hazard, ``[n]``.
    error
        Standard error of the cumulative hazard.
    """

    times: Floats
    hazard: Floats
    error: Floats

    @property
    def survival(self) -> Floats:
        """Share that survives each time."""
        return np.exp(-self.hazard)


def predicted_curve(tensors: Tensors, model: Cox, profile: Floats) -> PredictedCurve:
    r"""Return the survival of a profile of features ``[F]``.

    .. math:: \Lambda(t) = e^\eta \sum_{c \le t} h_c, \qquad
              \operatorname{Var} \Lambda(t) = e^{2 \eta} \Bigl(\sum_{c \le t} q_c + d^T V d\Bigr), \qquad
              d = \sum_{c \le t} h_c (x - \bar x_c)

    with :math:`\eta` and x relative to the mean sample, whose hazards are :math:`h_c` with variances :math:`q_c`, and
    the covariance V of the coefficients, as R's ``survfit``.

    References
    ----------
    Tsiatis, A large sample study of Cox's regression model, Annals of Statistics 9, 1981.
    """
    kept = model.roles.kept
    stratum = int(model.roles.stratum(profile[None])[0])
    centred = profile[kept] - tensors["means"][kept]
    risk = float(np.exp(centred @ tensors["weight"][0, kept]))
    cells = np.flatnonzero(tensors["hazard"][stratum])
    hazard = np.cumsum(tensors["hazard"][stratum, cells])
    away = hazard[:, None] * centred - np.cumsum(tensors["hazard_means"][stratum, cells], axis=0)  # [n, p]
    spread = np.einsum("np,pq,nq->n", away, tensors["covariance"], away)
    variance = np.cumsum(tensors["hazard_square"][stratum, cells]) + spread
    return PredictedCurve(model.grid(tensors).ends(cells), risk * hazard, risk * np.sqrt(variance))


def predicted_survival(
    tensors: Tensors, model: Cox, profiles: Floats, names: Sequence[str], *, interval: str
) -> dict[str, Any]:
    """Return the survival of profiles as JSON values.

    ``predicted`` is true, and ``groups`` has the curve of each profile at the times of events: ``name``, ``median``
    with ``median_low`` and ``median_high``, ``times``, cumulative ``hazard``, ``survival``, its standard ``error``, and
    ``low`` and ``high`` ends of the 95 % ``interval``.

    Parameters
    ----------
    tensors, model
        A regression that has converged.
    profiles, names
        Features ``[n, F]``, and a name for each row.
    interval
        One of :data:`~p2pfl.plugins.exact.survival.curves.BANDS`.

    Raises
    ------
    InputError
        The regression has not converged, or has a ridge, or there is no such interval.
    """
    if not tensors["converged"][0]:
        raise InputError("the regression has not converged, so it predicts no survival; train more rounds")
    if model.ridge:
        raise InputError("predicted survival has no errors with model.options.ridge; train without a ridge")
    if model.cause is not None or model.robust:
        raise InputError(
            "survival is predicted without kinds of events and robust errors; see the cumulative incidence of p2pfl "
            "survival --cause, or train a model cox without model.options.cause and errors"
        )
    if interval not in BANDS:
        raise InputError(f'--interval is "{interval}"; choose from {", ".join(BANDS)}')
    groups = []
    for name, profile in zip(names, profiles, strict=True):
        curve = predicted_curve(tensors, model, profile)
        low, high = band(curve.survival, curve.survival * curve.error, kind=interval)
        end = float(curve.times[-1]) if len(curve.times) else 0.0
        median, *ends = (time_of_share(curve.times, each, 0.5, end=end) for each in (curve.survival, low, high))
        groups.append(
            {
                "name": name,
                "median": median,
                "median_low": ends[0],
                "median_high": ends[1],
                "times": curve.times.tolist(),
                "hazard": curve.hazard.tolist(),
                "survival": curve.survival.tolist(),
                "error": (curve.survival * curve.error).tolist(),
                "low": low.tolist(),
                "high": high.tolist(),
            }
        )
    last = max((each["times"][-1] for each in groups if each["times"]), default=0.0)
    return {
        "predicted": True,
        "group": None,
        "groups": groups,
        "risk_times": round_times(last),
        "interval": interval,
    }
