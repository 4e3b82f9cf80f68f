"""Refusals of regressions whose totals would be close to the data of single samples, as in DataSHIELD."""

from __future__ import annotations

from p2pfl.core.errors import DataError, LearningError, ModelError

LEAST = 5
"""Default of ``model.options.least``."""

MOST_COEFFICIENTS = 0.33
"""Default of ``model.options.coefficients_per_sample``."""


def check_limits(least: int, coefficients_per_sample: float) -> None:
    """Refuse limits without effect.

    Raises
    ------
    ModelError
        One of them is too small.
    """
    if least < 1 or not coefficients_per_sample > 0:
        raise ModelError(
            f"model.options.least = {least} and coefficients_per_sample = {coefficients_per_sample} allow no model; "
            "set least to at least 1 and coefficients_per_sample above 0"
        )


def check_least(peer: str, samples: int, *, least: int) -> None:
    """Refuse to take part with few samples; a peer without samples adds nothing and may take part.

    Raises
    ------
    DataError
        The peer has too few samples.
    """
    if 0 < samples < least:
        raise DataError(
            f"{peer} has {samples} samples, fewer than model.options.least = {least}, so what it adds would show "
            "single samples; take part with more, or leave this peer out"
        )


def check_coefficients(coefficients: int, samples: int, *, most: float) -> None:
    """Refuse a model with many coefficients for the samples of all peers.

    Raises
    ------
    LearningError
        There are too many.

    Examples
    --------
    >>> check_coefficients(33, 100, most=0.33)
    """
    if coefficients > most * samples:
        raise LearningError(
            f"{coefficients} coefficients for the {samples} samples of all peers are more than "
            f"model.options.coefficients_per_sample = {most} allows, so the totals would be close to the data; use "
            "fewer features or more samples"
        )
