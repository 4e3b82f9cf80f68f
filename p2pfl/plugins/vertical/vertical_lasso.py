"""Lasso and elastic net of columns at different peers, as a vertical run asks for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.learning.additive import Questions
from p2pfl.plugins.vertical.elastic_net import PathFit, PathOptions, fit_path
from p2pfl.plugins.vertical.gram import JoinedDesign, JoinedTable
from p2pfl.plugins.vertical.vertical_regression import RegressionResult, VerticalRegression
from p2pfl.plugins.vertical.whole import WholeFit, fit_whole_path
from p2pfl.privacy.keys import Source


@dataclass(frozen=True, eq=False)
class ChosenFit:
    """Model of a path that validation rows have chosen.

    Parameters
    ----------
    path
        The path.
    """

    path: PathFit

    @property
    def design(self) -> JoinedDesign:
        """Public shape of the joined table."""
        return self.path.design

    @property
    def figures(self) -> Mapping[str, float]:
        """Deviance of the chosen model, and of that without columns."""
        deviances = self.path.deviances
        return {"deviance": float(deviances[self.path.chosen]), "null_deviance": float(deviances[0])}

    @property
    def own(self) -> Callable[[str], Mapping[str, Floats]]:
        """Function that returns the coefficients of a local party, and the label holder's intercept."""
        return lambda peer: {name: np.atleast_1d(each[self.path.chosen]) for name, each in self.path.own(peer).items()}


@dataclass(frozen=True, kw_only=True)
class VerticalLasso(VerticalRegression):
    """Linear model under the elastic net penalty, whose penalty training rows that are set aside choose.

    Parameters
    ----------
    l1_ratio, lambdas, smallest
        Share of the L1 penalty, number of penalties, and the last as a share of the first.
    validation
        Share of the training rows that choose the penalty.
    """

    name: ClassVar[str] = "lasso"
    with_errors: ClassVar[bool] = False
    published: ClassVar[str] = "all penalties, with the deviances of training rows and of those that choose one"

    family: Literal["gaussian"] = "gaussian"
    l1_ratio: float = 1.0
    lambdas: int = 50
    smallest: float = 1e-3
    validation: float = 0.25

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ridge:
            raise ModelError("model.options.ridge has no effect with lasso; leave it out, and set l1_ratio below 1")
        if not 0 < self.validation < 1:
            raise ModelError(f"model.options.validation is {self.validation}; set it to a share between 0 and 1")
        self.path(rows=0)  # checks the others

    @property
    def received(self) -> str:
        """The part of the model that a party receives, in words."""
        return f"its own coefficients at each of {self.lambdas} penalties"

    def path(self, *, rows: int) -> PathOptions:
        """Return the options of the path over some rows."""
        held = int(self.validation * rows)
        return PathOptions(self.l1_ratio, self.lambdas, self.smallest, held)

    def ask(self, table: JoinedTable, source: Source) -> Questions[RegressionResult]:
        """Return the questions of the path."""
        return ChosenFit((yield from fit_path(table, source, self.path(rows=table.rows))))

    def whole(self, features: Floats, targets: npt.NDArray[Any]) -> WholeFit:
        """Return the model of columns in one place."""
        return fit_whole_path(features, targets, self.path(rows=len(features)))
