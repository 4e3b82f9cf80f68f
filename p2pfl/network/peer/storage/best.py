"""Keep the best model of a run beside the last one, judged by a peer's own data."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from p2pfl.core.tensors import torch
from p2pfl.learning import learner_traits
from p2pfl.network.peer.storage.checkpoint import Best, CheckpointStore
from p2pfl.results.content import BestKept
from p2pfl.results.saved_models import best_file

if TYPE_CHECKING:
    from p2pfl.data import IntArray
    from p2pfl.experiment import Plan

MAX_JUDGING_SAMPLES = 1000
"""Training samples that judge a model where there is no validation part: enough, at a bounded cost."""


def best_kept(peer: str, best: Best) -> BestKept:
    """Return a peer's best model as the summary lists it."""
    return BestKept(best.round, best.loss, best.part, best_file(peer))


class BestModel:
    """Keeps each round's model that is better than those before, as ``NAME.best.safetensors`` where there is a store.

    Parameters
    ----------
    peer
        Name of the peer.
    store
        Store; without one, models are kept in memory, and only those that a validation part judges.

    Attributes
    ----------
    best
        What is kept; of an earlier incarnation too.
    rows
        Its parameters ``[1, P]``, where there is no store.
    """

    def __init__(self, peer: str, store: CheckpointStore | None) -> None:
        self.peer = peer
        self.store = store
        self.best: Best | None = None if store is None else store.best()
        self.rows: torch.Tensor | None = None

    @property
    def place(self) -> str | None:
        """The file of the best model, where there is a store."""
        return None if self.store is None else self.store.place()

    def consider(self, plan: Plan, rows: torch.Tensor, *, round: int, validation: float | None, since: int = 0) -> None:
        """Write a round's model if it is the best so far; this may take a while.

        Parameters
        ----------
        plan
            Of the peer, with the features as the model takes them.
        rows
            Its parameters ``[1, P]``.
        round
            From which they are.
        validation
            Their loss on the validation part, if there is one.
        since
            Round before which the rows changed that judge models; losses of earlier rounds are of other rows.

        Raises
        ------
        StorageError
            If the disk is full or not writable; the model that was kept stays.
        """
        if learner_traits(plan.learner).additive:  # of these the last is the best, of all peers
            return
        if self.store is None and validation is None:
            return
        part = "train" if validation is None else "validation"
        loss = self._training_loss(plan, rows) if validation is None else validation
        if loss is None or not math.isfinite(loss):
            return
        best = self.best
        if best is not None and best.part == part and best.round >= since and best.loss <= loss:
            return
        best = Best(round, loss, part)
        if self.store is None:
            self.rows = rows.clone()
        else:
            self.store.keep(best, plan.saved(rows[0], peer=self.peer))
        self.best = best

    def improvement(self, round: int, *, patience: int) -> torch.Tensor:
        """Return 1 if the best model is less than ``patience`` rounds old, and 0 otherwise, ``[1, 1]``.

        A peer without validation data has no such model, and holds nobody back.
        """
        best = self.best
        young = best is not None and best.part == "validation" and round - best.round < patience
        return torch.full((1, 1), float(young))

    def _training_loss(self, plan: Plan, rows: torch.Tensor) -> float | None:
        """Return the loss on training samples; ``None`` where only the user's own code could tell."""
        learner, federation = plan.learner, plan.federation
        if not learner_traits(learner).any_data:
            return None
        few = replace(federation, train={self.peer: thin_out(federation.train[self.peer])})
        return float(learner.on(few).evaluate(rows, peers=(self.peer,), part="train")["loss"][0])


def thin_out(positions: IntArray, *, most: int = MAX_JUDGING_SAMPLES) -> IntArray:
    """Return at most so many of the positions, evenly spaced, for samples may be sorted by class.

    Examples
    --------
    >>> import numpy as np
    >>> thin_out(np.arange(10), most=4).tolist()
    [0, 3, 6, 9]
    """
    return positions[:: math.ceil(len(positions) / most)] if len(positions) else positions
