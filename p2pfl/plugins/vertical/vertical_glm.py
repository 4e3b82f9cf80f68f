"""Generalised linear models of columns at different peers, as a vertical run asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar

import numpy.typing as npt

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.learning.additive import Questions
from p2pfl.plugins.vertical.aligned_table import AlignedTable
from p2pfl.plugins.vertical.gram import JoinedTable
from p2pfl.plugins.vertical.label_protection import RandomisedResponse, changed_labels
from p2pfl.plugins.vertical.linear import fit_linear
from p2pfl.plugins.vertical.newton import NewtonOptions, fit_newton
from p2pfl.plugins.vertical.party_roles import PartyRoles
from p2pfl.plugins.vertical.statement import VerticalRun
from p2pfl.plugins.vertical.vertical_regression import RegressionResult, VerticalRegression
from p2pfl.plugins.vertical.whole import WholeFit, fit_whole
from p2pfl.privacy.keys import Source


@dataclass(frozen=True, kw_only=True)
class VerticalGLM(VerticalRegression):
    """Generalised linear model: linear models from products of columns, others by noisy Newton steps.

    Parameters
    ----------
    predictor_noise
        False to show the label holder exact linear predictors at every step, from which columns nearly follow.
    label_epsilon
        Privacy of each of two classes under randomised response, for which the model corrects; ``None`` to fit the
        labels as they are.
    """

    name: ClassVar[str] = "glm"

    predictor_noise: bool = True
    label_epsilon: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_epsilon is not None:
            RandomisedResponse(self.label_epsilon)  # checks it
        if self.label_epsilon is not None and self.family != "binomial":
            raise ModelError(
                f'model.options.label_epsilon does not work with family = "{self.family}"; set family to "binomial", '
                "or leave label_epsilon out"
            )

    @property
    def statement(self) -> Callable[..., VerticalRun]:
        """Function that makes the statement of who learns what from public facts of a run."""
        return partial(super().statement, label_epsilon=self.label_epsilon)

    def joined(self, table: AlignedTable, roles: PartyRoles, source: Source) -> JoinedTable:
        """Return the training rows of all parties, with targets that are right on average where labels are changed."""
        joined = super().joined(table, roles, source)
        if self.label_epsilon is None:
            return joined
        response = RandomisedResponse(self.label_epsilon)

        @cache
        def target(label: str) -> Floats:
            changed = changed_labels(table.parties, response, source)
            return response.targets(changed[table.positions(label)][table.trained])[:, 1]

        return replace(joined, target=target)

    @property
    def noisy(self) -> bool:
        """True if all but the last predictors have noise."""
        return self.predictor_noise

    def ask(self, table: JoinedTable, source: Source) -> Questions[RegressionResult]:
        """Return the questions of the fit."""
        if self.family == "gaussian":
            return (yield from fit_linear(table, source, ridge=self.ridge))
        newton = NewtonOptions(
            self.family,
            ridge=self.ridge,
            predictor_noise=self.predictor_noise,
            label_epsilon=self.label_epsilon,
        )
        return (yield from fit_newton(table, source, newton))

    def whole(self, features: Floats, targets: npt.NDArray[Any]) -> WholeFit:
        """Return the model of columns in one place."""
        return fit_whole(features, targets, family=self.family, ridge=self.ridge)

    def pooled(
        self, table: AlignedTable, own: Mapping[str, Mapping[str, Floats]]
    ) -> tuple[dict[str, float], float | None]:
        """Return the scores of all columns in one place, and how far the parts differ from that model at most.

        With changed labels, it is the model of the labels as they are, from which the parts differ by design.
        """
        scores, difference = super().pooled(table, own)
        return scores, None if self.label_epsilon is not None else difference
