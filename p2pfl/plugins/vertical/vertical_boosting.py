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

import numpy as np

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import PrivacyError, RunError
from p2pfl.learning.additive import Questions
from p2pfl.plugins.vertical.encrypted_products import products_of
from p2pfl.plugins.vertical.label_trees import AlignedBoosting, GrowingTrees, LabelTrees, TreeRequest, TreeTable
from p2pfl.plugins.vertical.party_roles import check_rows
from p2pfl.plugins.vertical.private_messages import PrivateMessage, publish, send, state
from p2pfl.plugins.vertical.products import DealtProduct, Factors, SharedMatrix
from p2pfl.plugins.vertical.ring import Words
from p2pfl.plugins.vertical.tree_columns import (
    FEATURE_WORDS,
    SPLIT_WORDS,
    Bools,
)
from p2pfl.privacy.keys import Source


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
        self.trees: Callable[[], GrowingTrees] = cache(
            lambda: GrowingTrees(table, {party: each.read(self.label) for party, each in described.items()}, self._bits)
        )

    def _one_hot(self, party: str) -> Words:
        return self.table.columns(party).one_hot()

    def ask(self) -> Questions[FittedTrees]:
        """Grow all trees."""
        for _ in range(self.model.rounds):
            wanted: Callable[[], TreeRequest] = cache(lambda: self.trees().begin_round())
            roots, left = True, self._most()
            while True:
                request = yield from publish(partial(_public, wanted), size=1 + len(self.features), sender=self.label)
                left = left - [request[0], request[1:].sum()]
                if not (request >= 0).all() or not (left >= 0).all():
                    raise PrivacyError(
                        f"{self.label} asks for more histograms or splits than the trees of a round have nodes; it "
                        "does not follow the protocol, so end the run"
                    )
                counted, *new = request.astype(np.int64).tolist()
                for party, count in zip(self.features, new, strict=True):
                    yield from self._ask_bits(party, count, wanted)
                if not counted:
                    break
                wanted = yield from self._ask_histograms(counted, roots=roots)
                roots = False
            if roots:  # the label holder has ended early
                break
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

    def _most(self) -> Ints:
        """Return how many histograms and splits a round needs at most; best-first growth splits some in vain."""
        model = self.model
        nodes = model.columns * model.nodes
        exact = model.max_depth is not None and model.leaves == 2**model.max_depth
        levels = 1 if exact else min(model.max_depth or model.leaves, model.leaves)
        return levels * np.array([nodes, nodes // 2], np.int64)

    def _ask_bits(self, party: str, count: int, wanted: Callable[[], TreeRequest]) -> Questions[None]:
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

    def _ask_histograms(self, counted: int, *, roots: bool) -> Questions[Callable[[], TreeRequest]]:
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


def _public(wanted: Callable[[], TreeRequest]) -> Floats:
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
