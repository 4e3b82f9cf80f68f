"""Attack on the totals of the first boosted tree: bins that give away the classes or targets of their samples.

All derivatives of a class are equal in the first tree. So the total of a bin shows how many samples of each class the
bin has, and the class of every sample of a bin that has only one class. For numbers, a bin with one sample shows its
target. Observers see the total of everybody; colluders subtract what they added, and see that of the other peers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from p2pfl.core.draws import draw
from p2pfl.core.encodings import Floats, Ints
from p2pfl.experiment import Plan
from p2pfl.learning import ExactLearner
from p2pfl.learning.additive import answer_questions
from p2pfl.learning.exact_model import Part, Tensors
from p2pfl.plugins.exact import Boosting
from p2pfl.plugins.exact.bins import Bins
from p2pfl.plugins.exact.boosting import EXTRAS, BoostingRound
from p2pfl.plugins.exact.trees.losses import fraction

GROUP_COUNT = 8
"""Groups of peers whose figures are averaged."""


@dataclass(frozen=True)
class Exposure:
    """Figures of what the total of the first tree over some peers shows, averaged over groups of that many peers.

    Parameters
    ----------
    peers
        Number of peers whose total is seen.
    observer
        Who sees it in this experiment; empty if nobody does.
    samples
        Training samples of these peers.
    bins, single
        Bins in use of all features, and those of them with one sample.
    given
        Share of the pairs of a sample and a feature in which the bin of the feature determines the class or target.
    some
        Share of the samples whose class or target the bin of at least one feature determines.
    """

    peers: int
    observer: str
    samples: float
    bins: float
    single: float
    given: float
    some: float

    @property
    def figures(self) -> dict[str, str]:
        """Row of a table.

        Examples
        --------
        >>> [*Exposure(8, "everybody", 800.0, 1200.0, 90.0, 0.125, 0.5).figures.values()]
        ['8', 'everybody', '800', '1200', '90', '12.5 %', '50.0 %']
        """
        counts = {"samples": self.samples, "bins": self.bins, "of one": self.single}
        shares = {"by a feature": self.given, "by any": self.some}
        return {
            "peers": str(self.peers),
            "seen by": self.observer,
            **{name: f"{count:.0f}" for name, count in counts.items()},
            **{name: f"{100 * share:.1f} %" for name, share in shares.items()},
        }


@dataclass(frozen=True, eq=False)
class FirstTree:
    """Totals of the first tree, peer by peer.

    Parameters
    ----------
    model, tensors
        Model, and its tensors before the first tree, both public.
    answers
        What each peer adds, by column and bin, ``[columns, cells, V]``.
    parts
        Training samples of each peer, with which the attack is scored.
    merged
        Bin that each bin is part of, ``[cells]``; ``None`` if none are merged.
    """

    model: Boosting
    tensors: Tensors
    answers: dict[str, Ints]
    parts: dict[str, Part]
    merged: Ints | None = None

    @classmethod
    def of(cls, learner: ExactLearner, model: Boosting) -> FirstTree:
        """Return the totals of a learner, whose peers all take part."""
        own, peers = model.seen.owned(learner.own), learner.federation.peers
        tensors = answer_questions(
            model.begin(model.start(), own), lambda each: np.sum([each.answer(peer) for peer in peers], axis=0)
        )
        parts = {peer: own(peer).train for peer in peers}
        work = BoostingRound(model, tensors, own)
        answer_questions(work.merging(), lambda each: np.sum([each.answer(peer) for peer in peers], axis=0))
        question = work.question()
        answers = {peer: work.table(question.answer(peer)[:-EXTRAS]) for peer in peers}
        merged = work.growth.merged
        return cls(model, tensors, answers, parts, None if merged is None else merged.cells[0])

    @property
    def bins(self) -> Bins:
        """Bins, which all peers know."""
        return self.model.bins(self.tensors)

    def counts(self, peers: Sequence[str]) -> Ints:
        """Return the number of samples of some peers by bin and class, ``[cells, C]``, or by bin, ``[cells, 1]``."""
        sums = np.sum([self.answers[peer] for peer in peers], axis=0)  # [columns, cells, V]
        samples = sums[0, :, -1]  # [cells]
        if self.model.classes is None:
            column: Ints = samples[:, None]
            return column
        own, others = self._slopes()
        steps = samples[:, None] * others
        members: Ints = (sums[..., 0].T - steps) // (own - others)  # [cells, columns]; all terms of a class are equal
        return np.column_stack([samples - members[:, 0], members]) if self.model.classes == 2 else members

    def find_determined(self, peers: Sequence[str]) -> npt.NDArray[np.bool_]:
        """Return the bins that give away the class or target of their samples, ``[cells]``."""
        counts = self.counts(peers)
        single: npt.NDArray[np.bool_] = counts.sum(axis=1) == 1
        return single if self.model.classes is None else (counts > 0).sum(axis=1) == 1

    def cells(self, peers: Sequence[str]) -> Ints:
        """Return the bins of each sample of some peers, ``[F, n]``."""
        bins = self.bins
        codes = [bins.codes(self.parts[peer].features) for peer in peers]
        cells: Ints = np.concatenate(codes, axis=1).astype(np.int64) + bins.starts[:, None]
        return cells if self.merged is None else self.merged[cells]

    def exposure(self, groups: Sequence[Sequence[str]], *, observer: str) -> Exposure:
        """Return the mean figures of some groups of as many peers."""
        figures = np.mean([self._figures(group) for group in groups], axis=0)
        samples, bins, single, pairs, some = figures.tolist()
        return Exposure(len(groups[0]), observer, samples, bins, single, pairs, some)

    def _figures(self, peers: Sequence[str]) -> Floats:
        samples, cells = self.counts(peers).sum(axis=1), self.cells(peers)
        determined = self.find_determined(peers)[cells]  # [F, n]
        shares = (determined.mean(), determined.any(axis=0).mean()) if determined.size else (0.0, 0.0)
        return np.array([cells.shape[1], (samples > 0).sum(), (samples == 1).sum(), *shares])

    def _slopes(self) -> tuple[Ints, Ints]:
        """Return the derivatives of a sample of the class of a column, and of other samples, ``[columns]``."""
        columns, classes = self.model.columns, self.model.classes or 1
        targets = np.arange(columns) + (classes == 2)
        grid = 2.0 ** fraction(int(self.tensors["samples"][0]), bound=self.model.objective.steepest)
        margins, scale = np.tile(self.tensors["base"], (columns, 1)), float(self.tensors["scale"][0])
        own, others = (
            np.rint(self.model.objective.derivatives(margins, targets, scale)[0].diagonal() * grid).astype(np.int64)
            for targets in (targets, (targets + 1) % classes)
        )
        return own, others


def exposures(plan: Plan, *, seed: int = 0) -> tuple[Exposure, ...]:
    """Attack the first tree of an experiment, for totals over one peer up to all peers.

    Parameters
    ----------
    plan
        Resolved experiment; nothing is attacked unless its model is boosting from exact totals.
    seed
        Seed of the groups of peers.

    Returns
    -------
    tuple of Exposure
        Figures by number of peers, ascending.
    """
    learner = plan.learner.bare
    if not isinstance(learner, ExactLearner) or not isinstance(learner.model, Boosting):
        return ()
    tree = FirstTree.of(learner, learner.model)
    if not tree.tensors["samples"][0]:
        return ()
    peers, colluders = learner.federation.peers, plan.protection.wanted.colluders
    seen = _observers_by_size(len(peers), colluders)
    sizes = {2**power for power in range(len(peers).bit_length()) if 2**power <= len(peers)} | set(seen)
    results = list[Exposure]()
    for size in sorted(sizes):
        draws = 1 if size == len(peers) else GROUP_COUNT
        orders = [draw(seed, "audit groups", round=number).permutation(len(peers))[:size] for number in range(draws)]
        groups = [[peers[index] for index in sorted(order)] for order in orders]
        results.append(tree.exposure(groups, observer=seen.get(size, "")))
    return tuple(results)


def _observers_by_size(peers: int, colluders: int) -> dict[int, str]:
    """Return who sees the total over a number of peers.

    Examples
    --------
    >>> _observers_by_size(8, 3)
    {5: '3 colluding peers', 7: 'each peer', 8: 'everybody'}
    """
    observers = {peers - colluders: f"{colluders} colluding peers"} if 1 < colluders < peers else {}
    return observers | ({peers - 1: "each peer"} if peers > 1 else {}) | {peers: "everybody"}
