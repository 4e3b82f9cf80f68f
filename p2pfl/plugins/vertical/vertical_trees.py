""":class:`VerticalBoosting`, boosted trees of columns at different peers, as the learner of a vertical run asks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import DataError, ModelError
from p2pfl.core.explanations import Explained
from p2pfl.data.data_description import FloatArray
from p2pfl.data.parties import IN_TABLE, Party
from p2pfl.learning.additive import Question, Questions, answer_questions
from p2pfl.learning.exact_model import Own, Part, Tensors
from p2pfl.learning.small_cells import CellCheck
from p2pfl.plugins.exact.bins import Bins
from p2pfl.plugins.exact.tensor_model import DEFAULT_LEAST, Shapes, scalars
from p2pfl.plugins.exact.tree_features import TreeFeatures
from p2pfl.plugins.exact.trees.tree_model import bin_tensors
from p2pfl.plugins.vertical.aligned_table import AlignedTable
from p2pfl.plugins.vertical.block import describe_part, describe_run
from p2pfl.plugins.vertical.label_trees import AlignedBoosting, TreeTable, join_bins
from p2pfl.plugins.vertical.party_roles import MAX_PREDICTORS, PartyRoles
from p2pfl.plugins.vertical.tree_block import COUNTS, JOINT, NAME, UNUSED, TreeBlock, joint_trees
from p2pfl.plugins.vertical.tree_columns import SPLIT_FIELDS, Bools, TreeColumns
from p2pfl.plugins.vertical.tree_statement import BoostingRun
from p2pfl.plugins.vertical.vertical_boosting import fit_trees
from p2pfl.plugins.vertical.vertical_models import ALONE_SCORES, SCORE_TENSORS, SCORES, VerticalFit
from p2pfl.plugins.vertical.whole import score, score_classes, score_names
from p2pfl.privacy.keys import Source

FAMILIES = {"log_loss": "binomial", "squared_error": "gaussian", "poisson": "poisson", "gamma": "gamma"}
"""Family of the regression that has the same scores, by loss."""

V = TypeVar("V")

OWN_OPTIONS = ("categorical_features", "monotonic_cst", "bounds")
"""Options that name columns."""


@dataclass(frozen=True, kw_only=True)
class VerticalBoosting:
    """Gradient boosting of columns at different peers.

    The other parameters are those of :class:`p2pfl.plugins.exact.boosting.Boosting`; columns have names, whoever has
    them.

    Parameters
    ----------
    loss
        ``log_loss`` for classes, ``squared_error``, ``poisson`` or ``gamma``; parties without labels cannot see which
        one fits.
    classes
        Number of classes of ``log_loss``. A round grows one tree, or one for each of more than two classes.
    validation
        With ``early_stopping``, share of the training rows that decide when to stop.
    rounds, seed, parties
        Number of trees, seed of the draws of rows and features, and names of all parties in order.
    """

    name: ClassVar[str] = "boosting"
    statement: ClassVar[type[BoostingRun]] = BoostingRun
    figures: ClassVar[tuple[str, ...]] = COUNTS
    predictors: ClassVar[int] = MAX_PREDICTORS
    noisy: ClassVar[bool] = False
    received: ClassVar[str] = (
        "which cuts of its columns split a node, when first used, and which of its bins have few rows of a node"
    )
    published: ClassVar[str] = (
        "the number of trees, of bins of each party, of nodes of each level, and of new splits of each party, and "
        "which are kept"
    )

    loss: Literal["log_loss", "squared_error", "poisson", "gamma"]
    rounds: int
    seed: int = 0
    parties: tuple[str, ...] = ()
    classes: int = 2
    learning_rate: float = 0.1
    max_leaf_nodes: int | None = 31
    max_depth: int | None = None
    min_samples_leaf: int = 20
    min_hessian: float = 1e-3
    l2_regularization: float = 0.0
    subsample: float = 1.0
    colsample_bytree: float = 1.0
    max_bins: int = 32
    edges: Literal["sketch", "even"] = "sketch"
    bounds: dict[str, list[float | str]] | None = None
    categorical_features: list[str] | str | None = None
    monotonic_cst: dict[str, int] | None = None
    early_stopping: bool = False
    n_iter_no_change: int = 10
    tol: float = 1e-7
    validation: float = 0.2
    least: int = DEFAULT_LEAST

    def __post_init__(self) -> None:
        if self.classes < 2 or (self.loss != "log_loss" and self.classes != 2):
            raise ModelError(
                f'model.options.classes is {self.classes}; set it to at least 2 with loss = "log_loss", or leave it out'
            )
        if not 0 < self.validation < 1:
            raise ModelError(f"model.options.validation is {self.validation}; set it to a share between 0 and 1")
        self._model()  # checks the options that name no columns

    @property
    def outcomes(self) -> int | None:
        """Number of classes; ``None`` for numbers."""
        return self.classes if self.loss == "log_loss" else None

    @property
    def _family(self) -> str:
        return FAMILIES[self.loss]

    @property
    def scores(self) -> tuple[str, ...]:
        """Names of the scores."""
        return score_names(self._family)

    def _model(self) -> TreeBlock:
        """Return a model with the options that name no columns."""
        options = {
            name: value for name, value in asdict(self).items() if name not in {*OWN_OPTIONS, "edges", "validation"}
        }
        options |= {"classes": self.outcomes, "trees": self.classes if self.classes > 2 else 1}
        return TreeBlock(features=1, label=True, **options)

    def block(self, party: Party, *, label: bool) -> TreeBlock:
        """Return the part of a party, as its file has it.

        Parameters
        ----------
        party, label
            The table of the party, and whether it is the label holder.
        """
        known, width = party.description.columns, party.features.shape[1]
        if party.may_lack and known is not None:
            known, width = known[:-1], width - len(IN_TABLE.levels or ())
        given = self.categorical_features
        here = {field.name for field in known or ()}
        chosen: str | list[str | int] | None
        chosen = [name for name in given if name in here] if isinstance(given, list) else given
        names = TreeFeatures.of(width, known, categorical=chosen).names
        return replace(
            self._model(),
            label=label,
            classes=self.outcomes if label else None,
            loss=self.loss if label else None,
            parties=self.parties if label else (),
            features=width,
            fields=known,
            may_lack=party.may_lack,
            edges=self.edges,
            categorical_features=chosen or None,
            monotonic_cst=_of_columns(self.monotonic_cst, names),
            bounds=_of_columns(self.bounds, names),
        )

    def _joined(self, categorical: Bools, signs: Ints) -> AlignedBoosting:
        """Return the model of features of which nobody but their owner knows the names."""
        chosen: list[str | int] = list(np.flatnonzero(categorical).tolist())
        signed = signs.tolist() if signs.any() else None
        features = len(categorical)
        return replace(
            self._model(), features=features, categorical_features=chosen or None, monotonic_cst=signed
        ).whole

    def check(self, peer: str, party: Party, roles: PartyRoles) -> None:
        """Refuse options that a table does not fit, and targets that the loss does not allow."""
        label = peer == roles.label
        block = self.block(party, label=label)
        if not label:
            return
        classes = party.description.classes
        if self.loss == "log_loss" and classes is None:
            raise DataError(f'{peer} has numbers, but loss = "log_loss" takes classes; choose another loss')
        if self.loss == "log_loss" and len(classes or ()) != self.classes:
            raise DataError(
                f"{peer} has {len(classes or ())} classes, but model.options.classes is {self.classes}, on which all "
                "parties agree; correct it, or merge classes"
            )
        if self.loss != "log_loss" and classes is not None:
            raise DataError(f'{peer} has classes, which loss = "{self.loss}" does not take; set it to "log_loss"')
        own = _own(np.zeros((len(party), 0), np.float32), party.targets)
        answer_questions(block.objective.begin(lambda _: own), lambda question: question.answer(peer))

    def fit(self, table: AlignedTable, roles: PartyRoles, source: Source) -> Questions[VerticalFit]:
        """Return the questions of the fit."""
        yield from self._check_names(table, roles)
        table = self._validated(table)
        if self.early_stopping and not len(table.validated):
            raise ModelError(
                f"model.options.validation = {self.validation} leaves no validation row of {len(table.trained)} rows; "
                "raise it, or leave early_stopping out"
            )
        shared = TreeTable(
            roles,
            table.rows,
            table.trained,
            cache(lambda peer: self._columns(table, peer)),
            lambda: table.targets(np.concatenate([table.trained, table.validated])),
            self._joined,
            table.parties.least,
            table.validated,
        )
        trees = yield from fit_trees(shared, self._model(), source)
        known = {"samples": float(len(table.trained)), "held_out": float(len(table.held_out)), **trees.figures}
        return VerticalFit(trees, {name: known[name] for name in self.figures})

    def _validated(self, table: AlignedTable) -> AlignedTable:
        """Return the table, some of whose training rows decide when to stop."""
        return replace(table, validation=self.validation) if self.early_stopping else table

    def _columns(self, table: AlignedTable, peer: str) -> TreeColumns:
        """Return the columns of a party, whose owner has merged rare levels of the training rows.

        Levels that few samples have are one, as in boosting in one place. The label holder looks at those of each class
        of its own columns; an owner that did would learn classes from what is merged.
        """
        label = peer == table.parties.label
        block = self.block(table.parties.party(peer), label=label)
        features, targets = _aligned(table, peer, block.features), np.zeros(len(table.trained))
        own = _own(features[table.trained], table.targets() if label else targets)
        check = CellCheck(lambda _: own, (peer,), lambda _: self.least, None)
        checked = answer_questions(block.check_cells({}, check), lambda question: question.answer(peer))
        if checked:
            features[table.trained] = block.merged_own(checked, lambda _: own)(peer).train.features
        return TreeColumns(peer, block, features, table.trained)

    def _check_names(self, table: AlignedTable, roles: PartyRoles) -> Questions[None]:
        """Refuse names of columns in options that no party has."""
        categorical = self.categorical_features if isinstance(self.categorical_features, list) else []
        names = [*dict.fromkeys([*categorical, *(self.monotonic_cst or {}), *(self.bounds or {})])]

        def has(peer: str) -> Ints:
            if peer not in roles.parties:
                return np.zeros(len(names), np.int64)
            party = table.parties.party(peer)
            own = {*party.columns, *(field.name for field in party.description.columns or ())}
            return np.array([name in own for name in names], np.int64)

        if not names:
            return
        owners = yield Question(has, size=len(names))
        for name, count in zip(names, owners.tolist(), strict=True):
            if count != 1:
                raise ModelError(
                    f'{count} parties have a column "{name}", which an option of boosting names; correct it, or rename '
                    "the column of one party"
                )

    def mean_loss(self, fit: VerticalFit) -> None:
        """Return nothing, as the label holder alone knows the loss."""
        del fit

    def shapes(self, party: Party, *, label: bool) -> Shapes:
        """Return the shapes of the private tensors of a party."""
        scores = dict.fromkeys(SCORE_TENSORS, (len(self.scores),)) if label else {}
        return self.block(party, label=label).shapes | scores

    def own(self, peer: str, table: AlignedTable, fit: VerticalFit) -> Mapping[str, Floats]:
        """Return the private tensors of a party, but for scores."""
        label, part, table = peer == table.parties.label, fit.fitted.own(peer), self._validated(table)
        shapes = self.block(table.parties.party(peer), label=label).shapes
        tensors = {name: np.array([fit.figures[name]]) for name in COUNTS}
        if label:
            tensors |= {name: each for name, each in self._alone(table).items() if name not in tensors}
            names = {name: name.removeprefix(JOINT) for name in shapes if name.startswith(JOINT)}
            return (
                tensors
                | {
                    name: _filled(part[each], shapes[name], rest=-1.0 if each == "feature" else 0.0)
                    for name, each in names.items()
                }
                | {name: _filled(part[name], shapes[name]) for name in ("owner", "owned")}
            )
        tensors["place"] = _filled(part["place"], shapes["place"], rest=UNUSED)
        return tensors | {f"split_{name}": _filled(part[name], shapes[f"split_{name}"]) for name in SPLIT_FIELDS}

    def _alone(self, table: AlignedTable) -> Tensors:
        """Return the trees of the label holder's columns alone."""
        label = table.parties.label
        block, columns = self.block(table.parties.party(label), label=True), self._columns(table, label)
        return fit_whole_trees(block.whole, columns.features, table, bins=columns.bins)

    def score(
        self, table: AlignedTable, roles: PartyRoles, fit: VerticalFit
    ) -> Questions[Callable[[], Mapping[str, Floats]]]:
        """Return the function by which the label holder scores the trees of all columns, and of its own alone."""
        yield from ()
        table = self._validated(table)

        def scores() -> Mapping[str, Floats]:
            block = self.block(table.parties.party(roles.label), label=True).whole
            features = _aligned(table, roles.label, block.features)[table.held_out]
            targets = table.targets(test=True)
            margins = {
                SCORES: fit.fitted.own(roles.label)["margins"][table.held_out],
                ALONE_SCORES: block.margins(self._alone(table), Part(features, targets)),
            }
            return {name: self._scored(each, targets) for name, each in margins.items()}

        return scores

    def _scored(self, margins: Floats, targets: npt.NDArray[Any]) -> Floats:
        several = margins.shape[1] > 1
        scores = score_classes(margins, targets) if several else score(margins[:, 0], targets, family=self._family)
        return np.array([scores[name] for name in self.scores])

    def kept(self, tensors: Mapping[str, Floats]) -> Mapping[str, Floats]:
        """Return the tensors that the file of a party holds."""
        return {name: value for name, value in tensors.items() if name not in SCORE_TENSORS}

    def described(self, party: Party | None, *, label: bool) -> Mapping[str, Any]:
        """Return the description in the file of a party, or, without one, what all may know."""
        if party is None:
            return describe_run(self.name, {"family": self._family, "loss": self.loss, "rounds": self.rounds})
        block, meaning = self.block(party, label=label), party.description
        if party.may_lack:
            meaning = replace(meaning, columns=block.fields)
        left = {"features", "classes", "fields"}
        options = {each.name: getattr(block, each.name) for each in fields(block) if each.name not in left}
        classes = None if meaning.classes is None or not label else list(map(str, meaning.classes))
        target = meaning.target if label else None
        return describe_part(NAME, options, meaning, features=block.features, classes=classes, target=target)

    def explained(self, tensors: Mapping[str, Floats], party: Party, *, label: bool) -> Explained | None:
        """Return the importances of features, at the label holder."""
        if not tensors["samples"][0]:
            return None
        return self.block(party, label=label).explained(tensors, fields=(), classes=())

    def pooled(
        self, table: AlignedTable, own: Mapping[str, Mapping[str, Floats]]
    ) -> tuple[dict[str, float], float | None]:
        """Return the scores of all columns in one place, and how far a number of a tree differs from that model."""
        names, label, table = table.parties.names, table.parties.label, self._validated(table)
        columns = {peer: self._columns(table, peer) for peer in names}
        bins = [columns[peer].bins for peer in names]
        shown = np.concatenate([columns[peer].described for peer in names])
        model = self._joined(shown[:, 2] > 0, shown[:, 3])
        features = np.concatenate([columns[peer].features for peer in names], axis=1)
        even = join_bins(bins) if self.edges == "even" else None
        tensors = fit_whole_trees(model, features, table, bins=even)
        targets = table.targets(test=True)
        margins = model.margins(tensors, Part(features[table.held_out], targets))
        scores = dict(zip(self.scores, self._scored(margins, targets).tolist(), strict=True))
        if {*own} != {*names}:
            return scores, None
        widths = {peer: each.features.shape[1] for peer, each in columns.items()}
        learned = joined_trees({peer: own[peer] for peer in names}, widths, label=label)
        away = [np.abs(learned[name] - tensors[name]).max() for name in learned]
        return scores, float(max(away))


def fit_whole_trees(
    model: AlignedBoosting, features: FloatArray, table: AlignedTable, *, bins: Bins | None = None
) -> Tensors:
    """Return the trees of columns in one place, by the model ``boosting``.

    Parameters
    ----------
    model
        The model.
    features, table
        Columns of all common rows as trees see them, ``[N, F]``, and the aligned table.
    bins
        Bins of these columns; those of the model if ``None``.
    """
    train, validation = (Part(features[rows], table.targets(rows)) for rows in (table.trained, table.validated))
    own = Own(train, validation)
    tensors = model.start()
    if bins is not None:
        begun = model.objective.begin(lambda _: own)
        samples, scale, base = answer_questions(begun, lambda question: question.answer("all"))
        tensors = {**tensors, **bin_tensors(bins), **scalars(samples=samples, scale=scale), "base": base}
    over = not features.shape[1]
    while not over:
        asking = model.round(tensors, lambda _: own)
        outcome = answer_questions(asking, lambda question: question.answer("all"))
        tensors, over = outcome.tensors, outcome.over
    return tensors


def joined_trees(own: Mapping[str, Tensors], widths: Mapping[str, int], *, label: str) -> dict[str, Floats]:
    """Return the trees in units of the tables, from what each party keeps, ``[T, M]`` each by name.

    Parameters
    ----------
    own
        Private tensors by party, in order of names.
    widths
        Number of features that trees see, by party.
    label
        The label holder.
    """
    names = [*own]
    first = dict(zip(names, np.cumsum([0, *widths.values()]).tolist(), strict=False))
    trees = {name: each.copy() for name, each in joint_trees(own[label]).items()}
    feature = trees["feature"].astype(np.int64)
    foreign, mine = feature >= widths[label], (feature >= 0) & (feature < widths[label])
    trees["feature"][mine] += first[label]
    number = feature[foreign] - widths[label]
    for peer, tensors in own.items():
        if peer == label:
            continue
        places = tensors["place"].astype(np.int64)
        at = {place: where for where, place in enumerate(places.tolist()) if place != UNUSED}
        chosen = np.array([each in at for each in number.tolist()], np.bool_)
        where = np.array([at[each] for each in number[chosen].tolist()], np.int64)
        rows = tuple(axis[chosen] for axis in np.nonzero(foreign))
        trees["feature"][rows] = first[peer] + tensors["split_feature"][where]
        trees["threshold"][rows] = tensors["split_threshold"][where]
        trees["missing"][rows] = tensors["split_missing"][where]
        if "categories" in trees:
            trees["categories"][rows] = tensors["split_categories"][where]
    return trees


def _of_columns(options: dict[str, V] | None, names: Collection[str]) -> dict[str, V] | None:
    """Return those of the options by column that are of these columns."""
    return None if options is None else {name: value for name, value in options.items() if name in names}


def _own(features: FloatArray, targets: npt.NDArray[Any]) -> Own:
    return Own(Part(features, targets), Part(features[:0], targets[:0]))


def _aligned(table: AlignedTable, peer: str, width: int) -> FloatArray:
    """Return the columns of a party over the common rows, with missing values of a person whom it lacks, ``[N, D]``."""
    positions = table.positions(peer)
    own = table.parties.party(peer).features[:, :width].astype(np.float32)
    if not len(own):
        return np.full((len(positions), width), np.nan, np.float32)
    return np.where(positions[:, None] >= 0, own[positions], np.float32(np.nan))


def _filled(values: Floats, shape: tuple[int, ...], *, rest: float = 0.0) -> Floats:
    """Return numbers in a larger array, with others after them."""
    whole = np.full(shape, rest)
    whole[: len(values)] = values
    return whole
