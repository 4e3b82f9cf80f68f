r"""Kernel ridge and kernel logistic regression with a Gaussian kernel over the columns of all parties.

Squared distances of standardised rows add up over parties, so the label holder receives their sums and solves for the
coefficients (:mod:`.kernel_solution`) of

.. math:: K_{ij} = \exp(-\gamma \sum_p \lVert x_{p,i} - x_{p,j} \rVert^2)

Distances place all rows up to a rotation, and columns of a few known people undo it. So three parties or more take
part, and each consents. Maps of columns (:mod:`.feature_maps`) are as accurate on public data and show less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, LearningError, ModelError, PrivacyError
from p2pfl.data.parties import Party
from p2pfl.learning.additive import Questions
from p2pfl.plugins.exact.tensor_model import Shapes
from p2pfl.plugins.vertical.aligned_table import AlignedTable, check_complete, joined_columns
from p2pfl.plugins.vertical.block import describe_part, describe_run
from p2pfl.plugins.vertical.kernel_block import NAME, KernelBlock, squared_distances
from p2pfl.plugins.vertical.kernel_solution import KernelSolution, solve_logistic, solve_ridge
from p2pfl.plugins.vertical.party_roles import MAX_PREDICTORS, PartyRoles, check_rows
from p2pfl.plugins.vertical.private_messages import collect, state
from p2pfl.plugins.vertical.statement import KernelRun, VerticalRun, listed
from p2pfl.plugins.vertical.vertical_models import SCORE_TENSORS, VerticalFit
from p2pfl.plugins.vertical.vertical_regression import check_targets
from p2pfl.plugins.vertical.whole import score, score_names
from p2pfl.privacy.keys import Source

MAX_ROWS = 5_000
"""Most rows, of which 5,000 are 12.5 million distances, 100 MB."""

FRACTION = 2.0**36
"""Points of the grid of squared distances in a unit."""

MAX_DISTANCE = 2.0**20
"""Largest squared distance in the columns of a party."""

MAX_COLUMNS = 2**31
"""Bound of the number of columns of a party, far beyond those of any table."""

CONSENT = "distances"
"""Word by which each party agrees that the label holder sees sums of distances."""


@dataclass(frozen=True, eq=False)
class KernelFit:
    """Joint kernel model.

    Parameters
    ----------
    own
        ``own(label)`` returns ``gamma``, ``dual`` ``[n]`` and ``bias``, those of the label holder's own model after
        ``alone_``, and the squared ``distances`` of test rows to training rows ``[t, n]``; of other parties ``gamma``
        alone. Private.
    """

    own: Callable[[str], Mapping[str, Floats]]
    figures: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class VerticalKernel:
    """Kernel ridge or kernel logistic regression with a Gaussian kernel over the columns of three parties or more.

    Parameters
    ----------
    family
        ``gaussian`` for numbers, ``binomial`` for two classes.
    ridge
        Penalty, ``alpha`` of scikit-learn's ``KernelRidge`` on targets less their mean; of classes 1 over ``C`` of its
        ``LogisticRegression`` on functions whose products are the kernel.
    gamma
        Rate at which the kernel falls with squared distances of standardised columns; 0 for 1 over their number.
    consent
        ``distances``: each party agrees that the label holder receives sums of the others' distances.
    """

    name: ClassVar[str] = "kernel"
    figures: ClassVar[tuple[str, ...]] = ("samples", "held_out")
    statement: ClassVar[type[VerticalRun]] = KernelRun
    predictors: ClassVar[int] = MAX_PREDICTORS
    noisy: ClassVar[bool] = False
    received: ClassVar[str] = "nothing of the model"
    published: ClassVar[str] = "nothing of the model"

    family: Literal["gaussian", "binomial"] = "gaussian"
    ridge: float = 1.0
    gamma: float = 0.0
    consent: str = ""

    def __post_init__(self) -> None:
        if not (0 < self.ridge < math.inf and 0 <= self.gamma < math.inf):
            raise ModelError(
                f"model.options: ridge = {self.ridge} and gamma = {self.gamma} make no kernel model; set ridge above 0 "
                "and gamma to at least 0"
            )

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores."""
        return score_names(self.family)

    def check(self, peer: str, party: Party, roles: PartyRoles) -> None:
        """Refuse missing values, two parties, parties that have not consented, and targets of another family."""
        check_complete(peer, party)
        if len(roles.features) < 2:
            raise ModelError(
                f'model.name = "kernel" would show {roles.label} the distances of one other party; take three parties '
                "or more, or glm with model.options.maps"
            )
        if self.consent != CONSENT:
            raise ModelError(
                f'model.name = "kernel" shows {roles.label} sums of distances between all rows, from which it can '
                f'compute columns; set model.options.consent = "{CONSENT}" if all parties agree, or take glm with maps'
            )
        if peer == roles.label:
            check_targets(peer, party, self.family)

    def fit(self, table: AlignedTable, roles: PartyRoles, source: Source) -> Questions[VerticalFit]:
        """Ask for the sums of distances."""
        del source
        train, test = len(table.trained), len(table.held_out)
        check_rows(train, least=table.parties.least)
        if train + test > MAX_ROWS:
            raise LearningError(
                f"the tables have {train + test:,} rows in common, more than {MAX_ROWS:,}, whose distances a joint "
                "kernel takes; take glm with model.options.maps"
            )
        widths = yield from state(lambda peer: table.standardised(peer).train.shape[1], peers=roles.parties)
        for peer, width in zip(roles.parties, widths.tolist(), strict=True):
            if not 0 <= width < MAX_COLUMNS:
                raise PrivacyError(
                    f"{peer} states {width} columns, which no table has; it does not follow the protocol, so end the "
                    "run"
                )
        gamma = self._gamma(int(widths.sum()))
        one, other = np.triu_indices(train, 1)

        def answer(peer: str) -> Ints:
            own = table.standardised(peer)
            among, across = squared_distances(own.train, own.train), squared_distances(own.test, own.train)
            distances = np.concatenate([among[one, other], across.ravel()])
            if distances.max(initial=0.0) >= MAX_DISTANCE:
                raise DataError(
                    f"{peer} has rows at a squared distance of {distances.max():.3g}, beyond what a sum can hold; "
                    "leave out the column that runs away"
                )
            return np.rint(distances * FRACTION).astype(np.int64)

        message = yield from collect(answer, size=len(one) + test * train, to=roles.label, among=roles.features)

        @cache
        def solved() -> Mapping[str, Floats]:
            received, own = message.read(roles.label) / FRACTION, table.standardised(roles.label)
            if received.size and not 0 <= received.min() <= received.max() <= len(roles.features) * MAX_DISTANCE:
                raise PrivacyError(
                    f"the sums of distances of {listed(roles.features)} are out of range, so a party does not "
                    "follow the protocol; end the run"
                )
            among = squared_distances(own.train, own.train)
            foreign = np.zeros((train, train))
            foreign[one, other] = foreign[other, one] = received[: len(one)]
            narrow = self._gamma(own.train.shape[1])
            together = self._solution(among + foreign, table.targets(), gamma)
            alone = self._solution(among, table.targets(), narrow)
            return {
                "gamma": np.array([gamma]),
                "dual": together.dual,
                "bias": np.array([together.bias]),
                "alone_gamma": np.array([narrow]),
                "alone_dual": alone.dual,
                "alone_bias": np.array([alone.bias]),
                "distances": received[len(one) :].reshape(test, train) + squared_distances(own.test, own.train),
            }

        def own(peer: str) -> Mapping[str, Floats]:
            return solved() if peer == roles.label else {"gamma": np.array([gamma])}

        figures = {"samples": float(train), "held_out": float(test)}
        return VerticalFit(KernelFit(own, figures), figures)

    def _gamma(self, columns: int) -> float:
        return self.gamma or 1.0 / max(columns, 1)

    def _solution(self, distances: Floats, targets: npt.NDArray[Any], gamma: float) -> KernelSolution:
        kernel = np.exp(-gamma * distances)
        np.fill_diagonal(kernel, 1.0)
        if self.family == "binomial":
            return solve_logistic(kernel, targets, ridge=self.ridge)
        return solve_ridge(kernel, targets.astype(np.float64), ridge=self.ridge)

    def mean_loss(self, fit: VerticalFit) -> None:
        """Return nothing, as the label holder alone knows the training loss."""
        del fit

    def shapes(self, party: Party, *, label: bool) -> Shapes:
        """Return the shapes of the private tensors of a party."""
        scores = dict.fromkeys(SCORE_TENSORS, (len(self.scores),)) if label else {}
        return self._block(party, label=label).shapes | scores

    def own(self, peer: str, table: AlignedTable, fit: VerticalFit) -> Mapping[str, Floats]:
        """Return the private tensors of a party, but for scores."""
        columns, size = table.standardised(peer), _capacity(table.parties.party(peer))
        own, train = fit.fitted.own(peer), columns.train
        support = np.zeros((size, len(columns.mean)))
        support[: len(train), columns.kept] = train
        tensors = {name: np.array([fit.figures[name]]) for name in self.figures}
        tensors |= {"mean": columns.mean, "deviation": columns.deviation, "support": support}
        tensors |= {"kept": columns.spread(np.ones(len(columns.kept))), "gamma": own["gamma"]}
        if peer == table.parties.label:
            tensors |= {name: np.pad(own[name], (0, size - len(train))) for name in ("dual", "alone_dual")}
            tensors |= {name: own[name] for name in ("bias", "alone_gamma", "alone_bias")}
        return tensors

    def score(
        self, table: AlignedTable, roles: PartyRoles, fit: VerticalFit
    ) -> Questions[Callable[[], Mapping[str, Floats]]]:
        """Return the function by which the label holder computes its scores, as it has all distances."""
        yield from ()

        def scores() -> Mapping[str, Floats]:
            label, columns = roles.label, table.standardised(roles.label)
            own, targets = fit.fitted.own(label), table.targets(test=True)
            together = np.exp(-own["gamma"] * own["distances"]) @ own["dual"] + own["bias"]
            distances = squared_distances(columns.test, columns.train)
            alone = np.exp(-own["alone_gamma"] * distances) @ own["alone_dual"] + own["alone_bias"]
            named = [score(each, targets, family=self.family) for each in (together, alone)]
            return {
                name: np.array([each[kind] for kind in self.scores])
                for name, each in zip(SCORE_TENSORS, named, strict=True)
            }

        return scores

    def kept(self, tensors: Mapping[str, Floats]) -> Mapping[str, Floats]:
        """Return the tensors that the file of a party holds."""
        return {name: value for name, value in tensors.items() if name not in SCORE_TENSORS}

    def described(self, party: Party | None, *, label: bool) -> Mapping[str, Any]:
        """Return the description in the file of a party, or, without one, what all may know."""
        if party is None:
            return describe_run(self.name, {"family": self.family, "ridge": self.ridge, "gamma": self.gamma})
        features = party.features.shape[1]
        options = {"rows": _capacity(party), "label": label}
        meaning = party.description
        classes = None if meaning.classes is None or not label else [*map(str, meaning.classes)]
        target = meaning.target if label else None
        return describe_part(NAME, options, meaning, features=features, classes=classes, target=target)

    def explained(self, tensors: Mapping[str, Floats], party: Party, *, label: bool) -> None:
        """Return nothing, as a kernel has no coefficient of a column."""
        del tensors, party, label

    def pooled(
        self, table: AlignedTable, own: Mapping[str, Mapping[str, Floats]]
    ) -> tuple[dict[str, float], float | None]:
        """Return the scores of all columns in one place, and how far dual coefficients differ at most, relatively."""
        train, test = joined_columns(table), joined_columns(table, test=True)
        gamma = self._gamma(train.shape[1])
        dual, bias = self._solution(squared_distances(train, train), table.targets(), gamma)
        predicted = np.exp(-gamma * squared_distances(test, train)) @ dual + bias
        scores = score(predicted, table.targets(test=True), family=self.family)
        learned = own.get(table.parties.label)
        if learned is None:
            return scores, None
        away = np.abs(learned["dual"][: len(dual)] - dual).max()
        return scores, float(away / (np.abs(dual).max() or 1.0))

    def _block(self, party: Party, *, label: bool) -> KernelBlock:
        return KernelBlock(
            features=party.features.shape[1],
            rows=_capacity(party),
            classes=2 if label and self.family == "binomial" else None,
            label=label,
            fields=party.description.columns,
        )


def _capacity(party: Party) -> int:
    """Return the most training rows of a party, which has rows of others at its means where it may lack some."""
    return MAX_ROWS if party.may_lack else len(party)
