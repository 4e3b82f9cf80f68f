"""Losses of boosting by the names that scikit-learn gives them."""

from __future__ import annotations

from p2pfl.core.errors import ModelError
from p2pfl.plugins.exact.trees.losses.logarithmic import GammaLoss, PoissonLoss
from p2pfl.plugins.exact.trees.losses.own import OwnLoss
from p2pfl.plugins.exact.trees.losses.quantiles import Quantile
from p2pfl.plugins.exact.trees.losses.smooth import Loss, Numbers, Several, Two

NUMBERS = ("squared_error", "absolute_error", "poisson", "gamma", "quantile")
"""Losses of numbers."""

CLASSES = "log_loss"
"""Loss of classes."""


def objective(loss: str | None, *, classes: int | None, quantile: float | None, bound: float | None) -> Loss:
    """Return a loss.

    Parameters
    ----------
    loss
        Name, or ``package.module:function``; without it the log loss of classes, the squared error of numbers.
    classes
        Number of classes; ``None`` for a regression.
    quantile
        Quantile of the loss of that name.
    bound
        Bound of the derivatives of a loss of the user's own.

    Raises
    ------
    ModelError
        There is no such loss for these targets, or one of the settings does not belong to it.

    Examples
    --------
    >>> objective("quantile", classes=None, quantile=0.9, bound=None)
    Quantile(quantile=0.9)
    """
    own = loss is not None and ":" in loss
    _check_settings(loss, own=own, quantile=quantile, bound=bound)
    if own:
        if classes is not None and classes > 2:
            raise ModelError(
                f'model.options.loss = "{loss}" has one margin, and {classes} classes need one each; leave loss out'
            )
        return OwnLoss(str(loss), float(bound or 0.0))
    if loss not in {None, *(NUMBERS if classes is None else [CLASSES])}:
        kind, known = ("numbers", " or ".join(NUMBERS)) if classes is None else ("classes", CLASSES)
        raise ModelError(
            f'model.options.loss is "{loss}"; for targets that are {kind}, set it to {known}, or name '
            "package.module:function"
        )
    if classes is not None:
        return Two() if classes == 2 else Several(classes)
    named: dict[str, Loss] = {"poisson": PoissonLoss(), "gamma": GammaLoss(), "absolute_error": Quantile(0.5)}
    return Quantile(float(quantile or 0.0)) if loss == "quantile" else named.get(str(loss), Numbers())


def _check_settings(loss: str | None, *, own: bool, quantile: float | None, bound: float | None) -> None:
    """Refuse settings that do not belong to a loss, or that it lacks."""
    if (quantile is not None) != (loss == "quantile"):
        raise ModelError(
            'model.options.quantile and loss = "quantile" belong together; set both, or leave out quantile'
        )
    if quantile is not None and not 0 < quantile < 1:
        raise ModelError(f"model.options.quantile is {quantile}; set it to a value above 0 and below 1")
    if (bound is not None) != own:
        raise ModelError(
            "model.options.loss_bound is the largest derivative of a loss of your own, and belongs to no other one; "
            'set it with loss = "package.module:function", or leave it out'
        )
    if bound is not None and not 0 < bound < float("inf"):
        raise ModelError(f"model.options.loss_bound is {bound}; set it to a number above 0")
