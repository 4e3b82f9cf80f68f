r"""Gradient boosting of columns at different peers: the trees of all columns in one place, to the last bit.

The label holder knows the derivatives of the loss and the node that each row has reached. At each level it multiplies
the bins of each other party, 1 for each row and bin, with the count and the derivatives of the rows of each node:

.. math:: X \in \{0, 1\}^{n \times B} \text{ at a party}, \qquad
          V = [1_k, \; q(g) 1_k, \; q(h) 1_k]_k \text{ at the label holder}, \qquad X^T V \text{ to the label holder}

So it receives the histograms of the nodes, and chooses the best split as boosting in one place does. It names the split
to its owner, which answers with one bit for each common row. The owner learns neither a derivative nor which rows a
node has. Bins with few rows of a node are merged, from counts that the label holder receives first, before derivatives
are opened.

References
----------
Cheng et al., SecureBoost: a lossless federated learning framework, IEEE Intelligent Systems 36, 2021.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import PrivacyError, RunError
from p2pfl.learning.additive import Questions, answer_questions
from p2pfl.learning.exact_model import Own, Part, Tensors
from p2pfl.plugins.exact.bins import MAX_BINS, Bins
from p2pfl.plugins.exact.boosting import Boosting, BoostingRound
from p2pfl.plugins.exact.tensor_model import scalars
from p2pfl.plugins.exact.trees.draws import Sampling
from p2pfl.plugins.exact.trees.growing import BinnedSamples, BoostedSamples, GrowthTask
from p2pfl.plugins.exact.trees.merged_bins import MergedBins
from p2pfl.plugins.exact.trees.node_splits import Split
from p2pfl.plugins.exact.trees.tree_model import bin_tensors
from p2pfl.plugins.vertical.encrypted_products import products_of
from p2pfl.plugins.vertical.party_roles import LEAST_ROWS, PartyRoles, check_rows
from p2pfl.plugins.vertical.private_messages import PrivateMessage, publish, send, state
from p2pfl.plugins.vertical.products import DealtProduct, Factors, SharedMatrix
from p2pfl.plugins.vertical.ring import Words, words
from p2pfl.plugins.vertical.tree_columns import (
    FEATURE_WORDS,
    SPLIT_WORDS,
    Bools,
    TreeColumns,
    split_words,
    tree_values,
)
from p2pfl.privacy.keys import Source


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
        Functions that return the columns of a party, and the targets ``[n]`` of the label holder; private.
    joined
        Function that returns the model of all columns, given for each feature whether it is a category, and its
        direction; called at the label holder.
    least
        Least number of common rows.
    """

    roles: PartyRoles
    rows: int
    trained: Ints
    columns: Callable[[str], TreeColumns]
    targets: Callable[[], npt.NDArray[np.generic]]
    joined: Callable[[Bools, Ints], AlignedBoosting]
    least: int = LEAST_ROWS


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
class FittedTrees:
    """Result of boosting.

    Parameters
    ----------
    label
        Function that returns the trees, called at the label holder alone.
    splits
        Function that returns the splits of a local party without labels, in its units, in the order of their use.
    places
        For each of these parties, the numbers of its splits among those of all.
    """

    label: Callable[[], LabelTrees]
    splits: Callable[[str], Mapping[str, Floats]]
    places: Mapping[str, Ints]

    @property
    def figures(self) -> Mapping[str, float]:
        """Number of splits of all parties without labels."""
        return {"splits": float(sum(map(len, self.places.values())))}

    def own(self, party: str) -> Mapping[str, Floats]:
        """Return the splits of a local party with their numbers, or the trees and margins of the label holder."""
        if party in self.places:
            return {**self.splits(party), "place": self.places[party].astype(np.float64)}
        label = self.label()
        used = {"owner": label.owners.astype(np.float64), "owned": label.features.astype(np.float64)}
        return {**label.trees, "base": label.base, **used, "margins": label.margins}


def fit_trees(table: TreeTable, model: AlignedBoosting, source: Source) -> Questions[FittedTrees]:
    """Fit the trees of all columns.

    Parameters
    ----------
    table
        Table of all columns.
    model
        Any model with the public options: number of trees, loss, least number of rows of a bin.
    source
        Source of secret bytes.

    Raises
    ------
    DataError
        There are too few common rows.
    """
    check_rows(table.rows, least=table.least)
    roles = table.roles
    features = yield from state(lambda peer: len(table.columns(peer).described), peers=roles.features)
    cells = yield from state(lambda peer: table.columns(peer).cells, peers=roles.features)
    described = {}
    for party, count in zip(roles.features, features.tolist(), strict=True):
        described[party] = yield from send(
            partial(lambda peer: table.columns(peer).described.ravel(), party),
            size=count * FEATURE_WORDS,
            sender=party,
            to=roles.label,
        )
    fit = _Fit(table, model, source, dict(zip(roles.features, cells.tolist(), strict=True)), described)
    return (yield from fit.ask())


class _Fit:
    """Questions of a fit."""

    def __init__(
        self,
        table: TreeTable,
        model: AlignedBoosting,
        source: Source,
        cells: Mapping[str, int],
        described: Mapping[str, PrivateMessage],
    ) -> None:
        self.table, self.model, self.cells = table, model, cells
        self.label, self.features = table.roles.label, table.roles.features
        self.words = 3 if model.objective.curved else 2
        self.products = products_of(table.roles, source, len(table.trained))
        self.one_hot = {
            party: self.products.matrix(party, cells[party], cache(partial(self._one_hot, party)))
            for party in self.features
        }
        self.asked: dict[str, list[PrivateMessage]] = {party: [] for party in self.features}
        self.bits: dict[str, list[PrivateMessage]] = {party: [] for party in self.features}
        self.places: dict[str, list[int]] = {party: [] for party in self.features}
        self.trees: Callable[[], _Trees] = cache(
            lambda: _Trees(table, {party: each.read(self.label) for party, each in described.items()}, self._bits)
        )

    def _one_hot(self, party: str) -> Words:
        return self.table.columns(party).one_hot()

    def ask(self) -> Questions[FittedTrees]:
        """Grow all trees."""
        for _ in range(self.model.rounds):
            wanted: Callable[[], _Request] = cache(lambda: self.trees().begin_round())
            roots = True
            while True:
                request = yield from publish(partial(_public, wanted), size=1 + len(self.features), sender=self.label)
                counted, *new = request.astype(np.int64).tolist()
                self._check_request(counted, new)
                for party, count in zip(self.features, new, strict=True):
                    yield from self._ask_bits(party, count, wanted)
                if not counted:
                    break
                wanted = yield from self._ask_histograms(counted, roots=roots)
                roots = False
        size = self.asked_splits
        kept = (yield from publish(lambda: self.trees().used(), size=size, sender=self.label)) if size else np.zeros(0)
        return FittedTrees(
            cache(lambda: self.trees().end(kept > 0)),
            cache(
                lambda party: {name: each[kept[self.places[party]] > 0] for name, each in self._splits(party).items()}
            ),
            {party: (np.cumsum(kept > 0) - 1)[each][kept[each] > 0] for party, each in self.places.items()},
        )

    @property
    def asked_splits(self) -> int:
        """Number of splits of all parties without labels that are known so far, some of which no tree keeps."""
        return sum(map(len, self.places.values()))

    def _check_request(self, counted: int, new: Sequence[int]) -> None:
        """Refuse more nodes or splits than a level of trees can have."""
        most = self.model.columns * max(1, self.model.leaves - 1)
        if not 0 <= counted <= most or min(new) < 0 or sum(new) > most:
            raise PrivacyError(
                f"{self.label} asks for {counted} nodes and {sum(new)} splits of one level, of which trees have {most} "
                "at most; a peer does not follow the protocol"
            )

    def _ask_bits(self, party: str, count: int, wanted: Callable[[], _Request]) -> Questions[None]:
        """Name splits to their owner, which answers with one bit for each row."""
        if not count:
            return
        asked = yield from send(
            lambda: np.concatenate(wanted().splits[party]), size=count * SPLIT_WORDS, sender=self.label, to=party
        )
        packed = cache(lambda: _packed(self.table.columns(party).bits(asked.read(party).reshape(-1, SPLIT_WORDS))))
        answered = yield from send(packed, size=count * _row_words(self.table.rows), sender=party, to=self.label)
        self.asked[party].append(asked)
        self.bits[party].append(answered)
        self.places[party] += range(self.asked_splits, self.asked_splits + count)

    def _bits(self, party: str, number: int) -> Bools:
        """Return whether each row goes left at a split of a party, at the label holder."""
        for message in self.bits[party]:
            packed = message.read(self.label).reshape(-1, _row_words(self.table.rows))
            if number < len(packed):
                return np.unpackbits(packed[number].view(np.uint8), count=self.table.rows).astype(np.bool_)
            number -= len(packed)
        raise RunError(f"{party} has not answered at split {number}; start the run again")

    def _splits(self, party: str) -> Mapping[str, Floats]:
        asked = [each.read(party).reshape(-1, SPLIT_WORDS) for each in self.asked[party]]
        return self.table.columns(party).splits(np.concatenate([np.zeros((0, SPLIT_WORDS), np.int64), *asked]))

    def _ask_histograms(self, counted: int, *, roots: bool) -> Questions[Callable[[], _Request]]:
        """Ask for the histograms of some nodes, and return what the label holder then wants to know."""
        right = self.products.matrix(self.label, counted * self.words, cache(lambda: self.trees().weigh()))
        dealt = list[DealtProduct]()
        for party in self.features:
            dealt += yield from self.products.multiply([Factors(self.one_hot[party], right)])
        checks, every = [each.check for each in dealt], slice(None)
        counts = [each.product.part(every, slice(counted)) for each in dealt]
        sums = [each.product.part(every, slice(counted, None)) for each in dealt]
        if self.model.least == 1:
            read = yield from self.products.open([*counts, *sums], to=self.label, checks=checks)
            return cache(lambda: self.trees().proceed(self._histograms(read()[: len(dealt)], read()[len(dealt) :])))
        if not roots:
            counts = yield from self._merge(counts, cache(lambda: self.trees().begin_merging()), counted)
        read_counts = yield from self.products.open(counts, to=self.label, checks=checks)
        merging = cache(lambda: self.trees().merge(dict(zip(self.features, read_counts(), strict=True))))
        sums = yield from self._merge(sums, merging, counted)
        read = yield from self.products.open(sums, to=self.label)
        return cache(lambda: self.trees().proceed(self._histograms(read_counts(), read())))

    def _merge(
        self, sums: Sequence[SharedMatrix], cells: Callable[[], Mapping[str, Ints]], counted: int
    ) -> Questions[list[SharedMatrix]]:
        """Tell each party which of its bins are merged in some nodes, and return the sums of merged bins in shares."""
        merged = []
        for party, each in zip(self.features, sums, strict=True):
            told = yield from send(
                partial(_flat_cells, cells, party), size=counted * self.cells[party], sender=self.label, to=party
            )
            at = {party: partial(_read_cells, told, counted), self.label: partial(_own_cells, cells, party)}
            shares = {peer: cache(partial(_merged, share, at[peer])) for peer, share in each.at.items()}
            merged.append(SharedMatrix(each.shape, shares))
        return merged

    def _histograms(self, counts: Sequence[Ints], sums: Sequence[Ints]) -> dict[str, Ints]:
        """Return sums by party, node and bin, ``[K, cells, V]``; counts are not merged."""
        histograms = {}
        for party, count, each in zip(self.features, counts, sums, strict=True):
            both = np.concatenate([each.reshape(len(each), -1, self.words - 1), count[:, :, None]], axis=2)
            histograms[party] = both.transpose(1, 0, 2)
        return histograms


@dataclass(frozen=True, eq=False)
class _Request:
    """What the label holder wants to know next: histograms of some nodes, and bits of splits of each party."""

    counted: int
    splits: Mapping[str, list[Ints]]


class _Trees:
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
        targets = np.asarray(table.targets())
        train = Part(self.columns.train.features, targets)
        self.own = Own(train, Part(train.features[:0], targets[:0]))
        begun = self.model.objective.begin(lambda _: self.own)
        samples, scale, self.base = answer_questions(begun, lambda question: question.answer(roles.label))
        self.tensors: Tensors = {**bin_tensors(self.bins), **scalars(samples=samples, scale=scale)}
        self.margins = np.zeros((table.rows, self.model.columns)) + self.base
        self.binned = BinnedSamples(train, self.columns.bins)
        self.grown = list[dict[str, Floats]]()
        self.known: dict[tuple[int, ...], int] = {}
        self.owners, self.owned, self.numbers = list[int](), list[int](), list[int]()
        self.work: _LabelRound | None = None

    def _joined_bins(self, shown: Ints) -> Bins:
        """Return the bins of all parties, those of others with numbers in place of cuts and categories."""
        first = self.first[self.roles.label]
        here = slice(first, first + len(self.columns.bins.counts))
        return join_bins([_numbered(shown[: here.start]), self.columns.bins, _numbered(shown[here.stop :])])

    def begin_round(self) -> _Request:
        """End the last round, and begin the next one."""
        self._end_rounds()
        done = scalars(trees=len(self.grown))
        self.work = _LabelRound(self.model, {**self.tensors, **done}, self.own, self.margins[self.table.trained])
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

    def proceed(self, histograms: Mapping[str, Ints]) -> _Request:
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

    def _working(self) -> tuple[_LabelRound, GrowthTask]:
        if self.work is None or self.work.growth.task is None:
            raise RunError("no tree grows; ask for histograms after a round has begun")
        return self.work, self.work.growth.task

    def _wide(self, histograms: Mapping[str, Ints]) -> Ints:
        """Return the histograms of all parties side by side, ``[K, cells, V]``."""
        return np.concatenate([histograms[party] for party in self.roles.parties], axis=1)

    def _request(self, work: _LabelRound) -> _Request:
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
        return _Request(counted, asked)

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


class _LabelRound(BoostingRound):
    """Round of boosting of the label holder, which knows the margins of its samples."""

    def __init__(self, model: AlignedBoosting, tensors: Tensors, own: Own, margins: Floats) -> None:
        super().__init__(model, tensors, lambda _: own)
        self._margins = margins

    def margins(self, part: Part) -> Floats:
        """Return the margins of the training samples before the round, or of none."""
        return self._margins[: len(part)]

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
        sums = (histograms if merged is None else merged.of(histograms))[:, self._counted].ravel()
        if self.at_roots:
            self.root(np.concatenate([sums, self.losses("")]))
        else:
            self.level(sums)


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


def _public(wanted: Callable[[], _Request]) -> Floats:
    """Return the numbers of a request that all peers see."""
    request = wanted()
    return np.array([request.counted, *(len(each) for each in request.splits.values())], np.float64)


def _own_cells(cells: Callable[[], Mapping[str, Ints]], party: str) -> Ints:
    return cells()[party]


def _flat_cells(cells: Callable[[], Mapping[str, Ints]], party: str) -> Ints:
    return cells()[party].ravel()


def _read_cells(told: PrivateMessage, counted: int) -> Ints:
    cells = told.read(told.receiver).reshape(counted, -1)
    if cells.min(initial=0) < 0 or cells.max(initial=0) >= cells.shape[1]:
        raise PrivacyError(
            f"{told.receiver} is told to merge bins that its columns do not have; a peer does not follow the protocol"
        )
    return cells


def _row_words(rows: int) -> int:
    """Return the number of integers that carry a bit for each row."""
    return -(-rows // 64)


def _packed(bits: Bools) -> Ints:
    """Return bits ``[S, N]`` as integers."""
    padded = np.zeros((len(bits), 64 * _row_words(bits.shape[1])), np.bool_)
    padded[:, : bits.shape[1]] = bits
    return np.packbits(padded, axis=1).view(np.int64).ravel()


def _merged(share: Callable[[], Words], cells: Callable[[], Ints]) -> Words:
    """Return a share ``[cells, K V]`` of sums by bin and node whose bins are merged."""
    sums, into = share(), cells()
    by_node = sums.reshape(len(sums), len(into), -1)
    merged = np.zeros_like(by_node)
    for node, bins in enumerate(into):
        np.add.at(merged[:, node], bins, by_node[:, node])
    return merged.reshape(sums.shape)
