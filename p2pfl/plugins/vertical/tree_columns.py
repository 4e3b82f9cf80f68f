"""Columns of one party as trees see them: bins, and the side of a split on which each row lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.encodings import Floats, Ints
from p2pfl.core.errors import PrivacyError
from p2pfl.data.data_description import FloatArray
from p2pfl.learning.additive import answer_questions
from p2pfl.learning.exact_model import Own, Part
from p2pfl.plugins.exact.bins import Bins
from p2pfl.plugins.exact.boosting import Boosting
from p2pfl.plugins.exact.trees.node_splits import Split
from p2pfl.plugins.exact.trees.tree_model import BITS, WORDS, leaves
from p2pfl.plugins.vertical.ring import Words

Bools = npt.NDArray[np.bool_]

SPLIT_WORDS = 3 + WORDS
"""Integers by which the label holder names a split: feature, cut, side of missing values, and bins that go left."""

FEATURE_WORDS = 4
"""Integers that describe a feature: number of cuts, whether values are missing, whether it is a category, direction."""

SPLIT_FIELDS = ("feature", "threshold", "missing", "categories")
"""Numbers of a split in the units of its owner, as a node of a tree has them."""


class TreeColumns:
    """Private columns of one party over the common rows.

    Parameters
    ----------
    peer, model
        Name of the party, and the model of its own columns, which has the options of all.
    features
        Columns ``[N, D]`` of all common rows, in units of the table.
    trained
        Places of the n training rows.
    """

    def __init__(self, peer: str, model: Boosting, features: FloatArray, trained: Ints) -> None:
        self.peer, self.model = peer, model
        every = Part(features.astype(np.float32), np.zeros(len(features)))
        self.features = model.seen.owned(lambda _: Own(every, every))(peer).train.features  # [N, F]
        self.train = Part(self.features[trained], np.zeros(len(trained)))

    @cached_property
    def bins(self) -> Bins:
        """Bins of the own columns, by the rule of boosting in one place."""
        if not self.features.shape[1]:
            return Bins(np.zeros((0, self.model.max_bins - 1)), np.zeros(0, np.int64), np.zeros(0, np.bool_))
        own = Own(self.train, Part(self.train.features[:0], self.train.targets[:0]))
        return answer_questions(self.model.binned(lambda _: own), lambda question: question.answer(self.peer))

    @property
    def cells(self) -> int:
        """Number of bins of all features."""
        return int(self.bins.sizes.sum())

    @property
    def described(self) -> Ints:
        """Numbers by which the label holder knows the bins, ``[F, 4]``: neither a name nor a cut."""
        signs = np.zeros(len(self.bins.counts), np.int64) if self.model.signs is None else self.model.signs
        return np.stack([self.bins.counts, self.bins.missing, self.bins.categorical, signs], axis=1).astype(np.int64)

    def one_hot(self) -> Words:
        """Return 1 in the bin of each feature of each training row, ``[n, cells]``."""
        codes, starts = self.bins.codes(self.train.features), self.bins.starts
        hot = np.zeros((len(self.train), self.cells), np.uint64)
        for start, column in zip(starts.tolist(), codes, strict=True):
            hot[np.arange(len(hot)), start + column.astype(np.int64)] = 1
        return hot

    def splits(self, asked: Ints) -> dict[str, Floats]:
        """Return splits that the label holder has named ``[S, 11]`` in own units, by :data:`SPLIT_FIELDS`.

        Raises
        ------
        PrivacyError
            There is no such split.
        """
        splits = {name: np.zeros(len(asked)) for name in SPLIT_FIELDS[:-1]}
        splits["categories"] = np.zeros((len(asked), WORDS))
        for number, words in enumerate(asked):
            for name, value in self._split(words).boosted_entries(self.bins, child=1).items():
                if name in splits:
                    splits[name][number] = value
        return splits

    def _split(self, words: Ints) -> Split:
        feature, cut, missing = words[:3].tolist()
        if not (0 <= feature < len(self.bins.counts) and -1 <= cut <= self.bins.counts[feature]):
            raise PrivacyError(
                f"{self.peer} is asked for a split that its columns do not have; a peer does not follow the protocol"
            )
        lower = np.flatnonzero((words[3:, None] >> np.arange(BITS)) & 1)
        sizes = np.array([0, 0, missing]), np.array([0, 0, 1 - missing])  # where nobody lacks the value
        return Split(0.0, feature, cut, bool(missing), *sizes, tuple(lower.tolist()) if cut < 0 else ())

    def bits(self, asked: Ints) -> Bools:
        """Return whether each common row goes left at some splits, ``[S, N]``."""
        return sides(self.splits(asked), self.features, self.bins.categorical.tolist())


def split_words(split: Split, feature: int, *, missing: bool) -> Ints:
    """Return the integers that name a split of a feature of another party.

    Parameters
    ----------
    split, feature
        The split, and the number of its feature among those of the owner.
    missing
        True if missing values go left.
    """
    lower = np.zeros(WORDS * BITS, np.int64)
    lower[list(split.category)] = 1
    words = lower.reshape(WORDS, BITS) @ (1 << np.arange(BITS))
    return np.array([feature, split.cut, missing, *words.tolist()], np.int64)


def sides(splits: Mapping[str, Floats], features: FloatArray, categorical: Sequence[bool]) -> Bools:
    """Return whether each row goes left at some splits, ``[S, N]``.

    Parameters
    ----------
    splits
        Splits by :data:`SPLIT_FIELDS`.
    features, categorical
        Features ``[N, F]``, and which of them are categories.
    """
    goes_left = np.zeros((len(splits["feature"]), len(features)), np.bool_)
    for number, row in enumerate(goes_left):
        stump = {name: np.zeros((3, *splits[name].shape[1:])) for name in SPLIT_FIELDS}
        for name in SPLIT_FIELDS:
            stump[name][0] = splits[name][number]
        stump["feature"][1:] = -1
        row[:] = leaves(stump | {"left": np.array([1.0, 0, 0])}, features, categorical) == 1
    return goes_left


def tree_values(
    tree: Mapping[str, Floats], features: FloatArray, categorical: Sequence[bool], bits: Callable[[Ints], Bools]
) -> Floats:
    """Return the value of the leaf of each row in a tree of the label holder, ``[N]``.

    Parameters
    ----------
    tree
        Arrays ``[M]`` of the tree, in which the features after the label holder's own are splits of other parties.
    features, categorical
        Features ``[N, F]`` of the label holder, and which of them are categories.
    bits
        Function that returns whether each row goes left at some of these splits, ``[S, N]``.
    """
    width, feature = features.shape[1], tree["feature"].astype(np.int64)
    foreign = np.unique(feature[feature >= width])
    local = np.where(feature >= width, width + np.searchsorted(foreign, feature), feature)
    right = ~bits(foreign - width)
    both = np.concatenate([features, right.T.astype(features.dtype)], axis=1)
    known: dict[str, Any] = {**tree, "feature": local}
    return np.asarray(tree["value"][leaves(known, both, [*categorical, *[False] * len(foreign)])])
