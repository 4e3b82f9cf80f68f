"""Trees that the label holder grows from histograms of the columns of all parties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import RunError
from p2pfl.learning.additive import answer_questions
from p2pfl.learning.exact_model import Own, Part, Tensors
from p2pfl.plugins.exact.bins import MAX_BINS, Bins
from p2pfl.plugins.exact.boosting import Boosting, BoostingRound
from p2pfl.plugins.exact.tensor_model import scalars, stopped
from p2pfl.plugins.exact.trees.draws import Sampling
from p2pfl.plugins.exact.trees.growing import BinnedSamples, BoostedSamples, GrowthTask
from p2pfl.plugins.exact.trees.merged_bins import MergedBins
from p2pfl.plugins.exact.trees.node_splits import Split
from p2pfl.plugins.exact.trees.tree_model import bin_tensors
from p2pfl.plugins.vertical.party_roles import LEAST_ROWS, PartyRoles
from p2pfl.plugins.vertical.ring import Words, words
from p2pfl.plugins.vertical.tree_columns import (
    FEATURE_WORDS,
    Bools,
    TreeColumns,
    split_words,
    tree_values,
)


@dataclass(frozen=True)
class PositionSampling(Sampling):
    """Shares of samples and features that are drawn, samples by their position: nobody knows all of their values."""

    def samples(self, part: Part, *, round: int) -> npt.NDArray[np.bool_]:
        """Return which samples are drawn in a round, ``[n]``."""
        if self.rows >= 1:
            return np.ones(len(part), np.bool_)
        return np.asarray(draw(self.seed, "subsample by position", round=round).random(len(part)) < self.rows)


@dataclass(frozen=True, kw_only=True)
class AlignedBoosting(Boosting):
    """Boosting of rows in an order that all parties share.

    The parameters are those of :class:`p2pfl.plugins.exact.boosting.Boosting`.
    """

    @property
    def sampling(self) -> PositionSampling:
        """Shares of samples and features that are drawn."""
        return PositionSampling(self.subsample, self.colsample_bytree, self.seed)


@dataclass(frozen=True, eq=False)
class TreeTable:
    """Common rows in one order, of which each party holds its own columns.

    Parameters
    ----------
    roles
        Roles.
    rows, trained
        N, the number of common rows, and the places of the n training rows among them; public.
    columns, targets
        Functions that return the columns of a party, and the targets ``[n + v]`` of the label holder, those of the
        validation rows last; private.
    joined
        Function that returns the model of all columns, given for each feature whether it is a category, and its
        direction; called at the label holder.
    least
        Least number of common rows.
    validated
        Places of the v validation rows, whose loss ends the trees early.
    """

    roles: PartyRoles
    rows: int
    trained: Ints
    columns: Callable[[str], TreeColumns]
    targets: Callable[[], npt.NDArray[np.generic]]
    joined: Callable[[Bools, Ints], AlignedBoosting]
    least: int = LEAST_ROWS
    validated: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, eq=False)
class LabelTrees:
    """Trees of the label holder.

    Parameters
    ----------
    trees
        Arrays ``[T, M]`` by name; a feature after the own ones is a split of another party, which goes left below 0.5.
    base
        Margins without trees, ``[columns]``.
    owners, features
        Party of each of these splits, by its place among all parties, and number of its feature there.
    margins
        Margins of all common rows, ``[N, columns]``.
    """

    trees: Mapping[str, Floats]
    base: Floats
    owners: Ints
    features: Ints
    margins: Floats


@dataclass(frozen=True, eq=False)
class TreeRequest:
    """Request of the label holder: histograms of some nodes, and bits of splits of each party."""

    counted: int
    splits: Mapping[str, list[Ints]]


class GrowingTrees:
    """Trees that the label holder grows."""

    def __init__(self, table: TreeTable, described: Mapping[str, Ints], bits: Callable[[str, int], Bools]) -> None:
        roles = table.roles
        self.table, self.bits, self.roles = table, bits, roles
        self.columns = table.columns(roles.label)
        shown = {party: each.reshape(-1, FEATURE_WORDS) for party, each in described.items()}
        shown[roles.label] = self.columns.described
        counts = [len(shown[party]) for party in roles.parties]
        self.first = dict(zip(roles.parties, accumulate(counts, initial=0), strict=False))
        joined = np.concatenate([shown[party] for party in roles.parties])
        self.bins = self._joined_bins(joined)
        sizes, starts = self.bins.sizes, [*self.bins.starts.tolist(), int(self.bins.sizes.sum())]
        self.cells = {
            party: slice(starts[first], starts[first + count])
            for (party, first), count in zip(self.first.items(), counts, strict=True)
        }
        self.whole = int(sizes.sum())
        self.model = table.joined(self.bins.categorical, joined[:, 3])
        targets, learned = np.asarray(table.targets()), len(table.trained)
        train = Part(self.columns.train.features, targets[:learned])
        self.own = Own(train, Part(np.zeros((len(table.validated), 0), np.float32), targets[learned:]))
        begun = self.model.objective.begin(lambda _: self.own)
        samples, scale, self.base = answer_questions(begun, lambda question: question.answer(roles.label))
        self.tensors: Tensors = {**bin_tensors(self.bins), **scalars(samples=samples, scale=scale)}
        self.margins = np.zeros((table.rows, self.model.columns)) + self.base
        self.binned = BinnedSamples(train, self.columns.bins)
        self.grown, self.validation = list[dict[str, Floats]](), list[float]()
        self.known: dict[tuple[int, ...], int] = {}
        self.owners, self.owned, self.numbers = list[int](), list[int](), list[int]()
        self.work: LabelRound | None = None

    def _joined_bins(self, shown: Ints) -> Bins:
        """Return the bins of all parties, those of others with numbers in place of cuts and categories."""
        first = self.first[self.roles.label]
        here = slice(first, first + len(self.columns.bins.counts))
        return join_bins([_numbered(shown[: here.start]), self.columns.bins, _numbered(shown[here.stop :])])

    def begin_round(self) -> TreeRequest:
        """End the last round, and begin the next one; a request without nodes ends the trees early."""
        self._end_rounds()
        done = scalars(trees=len(self.grown))
        margins = self.margins[np.concatenate([self.table.trained, self.table.validated])]
        work = LabelRound(self.model, {**self.tensors, **done}, self.own, margins)
        if self.model.early_stopping:
            self.validation.append(work.validation_loss)
            if stopped(np.array(self.validation), self.model.n_iter_no_change, self.model.tol):
                return TreeRequest(0, {party: [] for party in self.roles.features})
        self.work = work
        drawn = self.model.sampling.samples(self.own.train, round=len(self.grown))
        self.routes = BoostedSamples(self.binned, self.model.columns, drawn)
        return self._request(self.work)

    def weigh(self) -> Words:
        """Move the rows to their nodes, and return the counts and derivatives of those of the counted nodes."""
        work, task = self._working()
        for number, (_, _, left) in task.splits.items():
            node = work.growth.nodes[number]
            if node.split is None:
                continue
            goes_left = self._side(node.split)[self.table.trained]
            nodes = self.routes.nodes[node.tree]
            rows = np.flatnonzero(nodes == number)
            nodes[rows] = left + ~goes_left[rows]
        *derived, ones = work.derived(self.roles.label)
        trees = [work.growth.nodes[number].tree for number in task.counted]
        inside = [self.routes.nodes[tree] == number for number, tree in zip(task.counted, trees, strict=True)]
        columns = [np.where(rows, ones[tree], 0.0) for rows, tree in zip(inside, trees, strict=True)]
        columns += [
            np.where(rows, values[tree], 0.0) for rows, tree in zip(inside, trees, strict=True) for values in derived
        ]
        return words(np.stack(columns, axis=1).astype(np.int64))

    def begin_merging(self) -> dict[str, Ints]:
        """Return by party the bins that each of its bins is merged into as in the parents of the counted nodes."""
        work, _ = self._working()
        return self._by_party(work.begin_merging())

    def merge(self, counts: Mapping[str, Ints]) -> dict[str, Ints]:
        """Return by party the bins that each of its bins is merged into, ``[K, cells]``, from counts ``[cells, K]``."""
        work, task = self._working()
        if work.at_roots:
            work.begin_merging()
        label = self.roles.label
        own = self.routes.count(task, work.derived(label)[-1:])
        own = MergedBins(self._by_party(work.cells)[label]).of(own)
        every = self._wide({label: own} | {party: each.T[..., None] for party, each in counts.items()})
        return self._by_party(work.merge(every[..., 0]))

    def _by_party(self, cells: Ints) -> dict[str, Ints]:
        return {party: cells[:, where] - where.start for party, where in self.cells.items()}

    def proceed(self, histograms: Mapping[str, Ints]) -> TreeRequest:
        """Split nodes by the histograms ``[K, cells, V]`` of the other parties."""
        work, task = self._working()
        label = self.roles.label
        own = self.routes.count(task, work.derived(label))
        work.proceed(self._wide({**histograms, label: own}))
        return self._request(work)

    def used(self) -> Floats:
        """Return 1 for each split of another party that a tree keeps, else 0."""
        self._end_rounds()
        used = np.zeros(len(self.owners))
        for trees in self.grown:
            feature = trees["feature"].astype(np.int64) - len(self.columns.bins.counts)
            used[feature[feature >= 0]] = 1.0
        return used

    def end(self, kept: Bools) -> LabelTrees:
        """Return the trees, with the splits of other parties that they keep."""
        self._end_rounds()
        trees = {name: np.concatenate([each[name] for each in self.grown]) for name in self.grown[0]}
        width = len(self.columns.bins.counts)
        foreign = trees["feature"] >= width
        number = trees["feature"][foreign].astype(np.int64) - width
        trees["feature"][foreign] = width + (np.cumsum(kept) - 1)[number]
        owners, features = np.array(self.owners, np.int64), np.array(self.owned, np.int64)
        return LabelTrees(trees, self.base, owners[kept], features[kept], self.margins)

    def _working(self) -> tuple[LabelRound, GrowthTask]:
        if self.work is None or self.work.growth.task is None:
            raise RunError("no tree grows; ask for histograms after a round has begun")
        return self.work, self.work.growth.task

    def _wide(self, histograms: Mapping[str, Ints]) -> Ints:
        """Return the histograms of all parties side by side, ``[K, cells, V]``."""
        return np.concatenate([histograms[party] for party in self.roles.parties], axis=1)

    def _request(self, work: LabelRound) -> TreeRequest:
        """Return what is needed next: bits of splits that are new, and histograms if the trees are not complete."""
        growth = work.growth
        if growth.task is not None:
            needed = [growth.nodes[number].split for number in growth.task.splits]
            counted = len(growth.task.counted)
        else:
            needed = [split for tree in range(growth.trees) for split in growth.kept_splits(tree).values()]
            counted = 0
        names = {self._name(split): None for split in needed if split is not None}
        asked: dict[str, list[Ints]] = {}
        for party in self.roles.features:
            place = self.roles.parties.index(party)
            new = [name for name in names if name[0] == place and name not in self.known]
            asked[party] = [np.array(name[1:], np.int64) for name in new]
            for name in new:
                self.known[name] = len(self.owners)
                self.numbers.append(self.owners.count(place))
                self.owners.append(place)
                self.owned.append(name[1])
        return TreeRequest(counted, asked)

    def _owner(self, split: Split) -> str:
        """Return the party of the feature of a split."""
        widths = np.array([*self.first.values()])
        return self.roles.parties[int(np.searchsorted(widths, split.feature, side="right")) - 1]

    def _name(self, split: Split) -> tuple[int, ...]:
        """Return the place of the owner, and what names a split to it."""
        party = self._owner(split)
        missing = bool(split.boosted_entries(self.bins, child=1)["missing"])
        named = split_words(split, split.feature - self.first[party], missing=missing)
        return self.roles.parties.index(party), *named.tolist()

    def _side(self, split: Split) -> Bools:
        """Return whether each common row goes left."""
        party = self._owner(split)
        if party == self.roles.label:
            return np.asarray(self.columns.bits(np.array([self._name(split)[1:]]))[0])
        return self.bits(party, self.numbers[self.known[self._name(split)]])

    def _foreign_sides(self, numbers: Ints) -> Bools:
        """Return whether each common row goes left at some splits of other parties, ``[S, N]``."""
        sides = [self.bits(self.roles.parties[self.owners[each]], self.numbers[each]) for each in numbers.tolist()]
        return np.array(sides, np.bool_).reshape(len(numbers), self.table.rows)

    def _end_rounds(self) -> None:
        """Keep the trees of a round that has not ended, and add their values to the margins."""
        if self.work is None:
            return
        growth, width, self.work = self.work.growth, len(self.columns.bins.counts), None
        arrays = growth.arrays(self.bins, size=self.model.nodes, rate=self.model.learning_rate)
        for tree in range(growth.trees):
            for place, split in growth.kept_splits(tree).items():
                party = self._owner(split)
                if party == self.roles.label:
                    arrays["feature"][tree, place] -= self.first[party]
                    continue
                arrays["feature"][tree, place] = width + self.known[self._name(split)]
                arrays["threshold"][tree, place], arrays["missing"][tree, place] = 0.5, 0.0
                if "categories" in arrays:
                    arrays["categories"][tree, place] = 0.0
        if self.columns.model.seen.plain:
            arrays.pop("categories", None)
        margins, categorical = self.margins.copy(), self.columns.bins.categorical.tolist()
        for tree in range(growth.trees):
            own = {name: values[tree] for name, values in arrays.items()}
            margins[:, tree] += tree_values(own, self.columns.features, categorical, self._foreign_sides)
        self.margins = margins
        self.grown.append(arrays)


class LabelRound(BoostingRound):
    """Round of boosting of the label holder, which knows the margins of its samples."""

    def __init__(self, model: AlignedBoosting, tensors: Tensors, own: Own, margins: Floats) -> None:
        super().__init__(model, tensors, lambda _: own)
        self._margins, self._train = margins, own.train
        self.note_losses(self.losses(""))

    def margins(self, part: Part) -> Floats:
        """Return the margins of the training or validation samples before the round."""
        learned = len(self._train)
        return self._margins[:learned] if part is self._train else self._margins[learned:]

    def begin_merging(self) -> Ints:
        """Return the bin that each bin of the counted nodes is merged into as those of its parent are."""
        self.growth.begin_merging()
        return self.cells

    def merge(self, counts: Ints) -> Ints:
        """Merge bins of the counted nodes in which few samples are, of counts ``[K, cells]``, and return them."""
        known = np.zeros_like(counts)
        known[:, self._counted] = counts[:, self._counted]
        self.growth.merge(known, self.model.least)
        return self.cells

    @property
    def cells(self) -> Ints:
        """Bin that each bin of the counted nodes is merged into, ``[K, cells]``."""
        if self.growth.merged is None:
            raise RunError("no bins are merged; ask for them before counts are opened")
        return self.growth.merged.cells

    def proceed(self, histograms: Ints) -> None:
        """Split nodes by the histograms of all parties, ``[K, cells, V]``."""
        merged = self.growth.merged
        self.level((histograms if merged is None else merged.of(histograms))[:, self._counted].ravel())


def join_bins(parts: Sequence[Bins]) -> Bins:
    """Return the bins of several parties as those of one."""
    widest = max(each.cuts.shape[1] for each in parts)
    cuts = np.concatenate([np.pad(each.cuts, ((0, 0), (0, widest - each.cuts.shape[1]))) for each in parts])
    known = [np.zeros((len(each.counts), MAX_BINS), np.bool_) if each.known is None else each.known for each in parts]
    counts, missing = (np.concatenate([getattr(each, name) for each in parts]) for name in ("counts", "missing"))
    every = np.concatenate(known)
    return Bins(cuts, counts, missing, every if every.any() else None)


def _numbered(shown: Ints) -> Bins:
    """Return bins of which only numbers are known, so that cuts lie between numbers, and categories are numbers."""
    counts = shown[:, 0]
    cuts = np.tile(np.arange(MAX_BINS) + 0.5, (len(counts), 1))
    known = (shown[:, 2:3] > 0) & (np.arange(MAX_BINS) <= counts[:, None])
    return Bins(cuts, counts, shown[:, 1] > 0, known)
