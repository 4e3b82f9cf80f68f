"""Membership of samples that have left a model, which treats them as others that it never had.

A model that learned from a sample has a lower loss on it than on others. So the losses of those who left are compared
with those of test samples of the same owner, from which the replay never learned; samples of other owners would show
the owner instead. An area under the ROC curve of one half is chance. The test says little, as most models hardly show
members at all, and people who leave may differ from those who stay; the certificate of a replay does not rest on it.

References
----------
S. Yeom et al., "Privacy risk in machine learning", CSF 2018.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from p2pfl.core.encodings import Floats
from p2pfl.core.errors import InputError
from p2pfl.data import Federation, IntArray
from p2pfl.experiment import Experiment, Plan, check, plain
from p2pfl.learning.learner import Learner, Predicts
from p2pfl.learning.set_scores import SetScore
from p2pfl.plugins.audit.statistical_tests import auc, auc_error
from p2pfl.results import Run
from p2pfl.results.formats import count_of

TWO_SIDED = 1.96
"""Standard errors beyond which an area is no chance, with 5 % of false alarms."""


@dataclass(frozen=True)
class WithdrawnMembers:
    """Result of the test for the samples of one owner.

    Parameters
    ----------
    owner
        Peer that left, or whose people left.
    left, others
        Samples of those who left, and test samples of the same owner.
    auc, error
        How often a sample that left has a lower loss than a test sample, and its standard error.
    """

    owner: str
    left: int
    others: int
    auc: float
    error: float

    @property
    def sentence(self) -> str:
        """The result in words.

        Examples
        --------
        >>> WithdrawnMembers("ada", 30, 12, 0.52, 0.1).sentence
        'ada: the loss tells 30 samples that left from 12 others with an AUC of 0.520 ± 0.100, which is chance'
        """
        chance = abs(self.auc - 0.5) <= TWO_SIDED * self.error
        verdict = "which is chance" if chance else "so those who left differ from others, or the model has learned them"
        return (
            f"{self.owner}: the loss tells {count_of(self.left, 'sample')} that left from {self.others} others with an "
            f"AUC of {self.auc:.3f} ± {self.error:.3f}, {verdict}"
        )


def find_withdrawn(folder: Path, without: Experiment, *, only: Sequence[str] | None = None) -> list[WithdrawnMembers]:
    """Test whether the models of a run show who left it, by ``learning.without`` or ``data.options.without``.

    Parameters
    ----------
    folder
        Directory of the run, whose models are read.
    without
        Its experiment, whose data are read.
    only
        Peers whose data are here; all by default.

    Raises
    ------
    InputError
        Nobody has left the run, or its model has no loss of single samples.
    """
    import p2pfl  # noqa: PLC0415 (it imports torch)

    if without.data.scale:
        raise InputError("models of data.scale are not tested, as their features are scaled in the run alone")
    with_all = check(_with_all(without))
    absent = [peer for peer in without.learning.without if only is None or peer in only]
    after = p2pfl.plan(without, only=only, unaccounted=True)
    before = p2pfl.plan(with_all, only=only, unaccounted=True)
    models = [_row(after.learner.bare, model) for _, model in sorted(Run.load(folder).models.items())]
    if not models:
        raise InputError(f"{folder} has no models; name the directory of a replay that was not forgotten in turn")
    results = list[WithdrawnMembers]()
    for owner in before.federation.peers:
        gone = owner in absent
        left = _left(before.federation, None if gone else after.federation, owner)
        if not len(left):
            continue
        rest = before if gone else after  # has test samples of the owner, from which no model learned
        others = _own_tests(rest, owner)
        if not len(others):
            raise InputError(f"{owner} has no test samples to compare with; its runs need data.test, such as 0.2")
        losses = [
            np.mean([_losses(plan.learner.bare, plan.federation, owner, part, row) for row in models], axis=0)
            for plan, part in ((before, left), (rest, others))
        ]
        area = auc(-np.concatenate(losses), np.repeat([True, False], [len(left), len(others)]))
        error = auc_error(area, positive=len(left), negative=len(others))
        results.append(WithdrawnMembers(owner, len(left), len(others), area, error))
    if not results:
        raise InputError(f"nobody has left {folder}; name the directory of a replay, which p2pfl forget has made")
    return results


def _with_all(experiment: Experiment) -> dict[str, Any]:
    """Return the settings of the run that nobody has left."""
    table = plain(experiment)
    table["learning"].pop("without", None)
    table["data"].get("options", {}).pop("without", None)
    return table


def _left(federation: Federation, kept: Federation | None, owner: str) -> IntArray:
    """Return the training samples of an owner that are in none of its samples that were kept; all if it left."""
    part = federation.train[owner]
    if kept is None:
        return part
    stayed = Counter(_texts(kept, np.concatenate([kept.train[owner], kept.validation[owner], kept.test[owner]])))
    everything = np.concatenate([part, federation.validation[owner], federation.test[owner]])
    left = list[int]()
    for position, text in zip(everything.tolist(), _texts(federation, everything), strict=True):
        if stayed[text]:
            stayed[text] -= 1
        else:
            left.append(position)
    return np.intersect1d(left, part)


def _texts(federation: Federation, positions: IntArray) -> list[bytes]:
    """Return the bytes of features and target of some samples."""
    chosen, data = torch.from_numpy(positions), federation.dataset
    features, targets = (each[chosen].reshape(len(positions), -1).numpy() for each in (data.features, data.targets))
    return [one.tobytes() + two.tobytes() for one, two in zip(features, targets, strict=True)]


def _own_tests(plan: Plan, owner: str) -> IntArray:
    """Return the test samples of an owner.

    Raises
    ------
    InputError
        They are those of all peers, whose samples differ from those of the owner.
    """
    data = plan.experiment.data
    if not data.owned and data.split != "iid":
        raise InputError(f"the test samples of {owner} are those of all peers; take data of its own, or data.split iid")
    return plan.federation.test[owner]


def _row(learner: Learner, model: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return a saved model as a row ``[P]``."""
    parts = {name: model[name].unsqueeze(0) for name in learner.layout.names}
    return learner.layout.join(parts)[0].to(learner.dtype)


def _losses(learner: Learner, federation: Federation, owner: str, part: IntArray, row: torch.Tensor) -> Floats:
    """Return the loss of a model ``[P]`` on each of some samples of an owner, ``[n]``.

    Raises
    ------
    InputError
        The model compares samples with each other, so single ones have no loss.
    """
    tested = learner.on(replace(federation.of(owner), test={owner: part}))
    loss = tested.scoring.get("loss") if isinstance(tested, Predicts) else None
    if not isinstance(tested, Predicts) or loss is None or isinstance(loss, SetScore):
        raise InputError("this model has no loss of single samples, by which members could be told")
    outputs, targets = tested.outputs(row, peer=owner)
    return np.asarray(loss(outputs, targets).double().numpy())
