"""The batches of every peer in a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import torch

from p2pfl.data import IntArray, check_batch, orders
from p2pfl.learning.steps.batching import BatchSchedule, Held
from p2pfl.learning.stragglers import work as share_of_work


class Scheduled(Protocol):
    """Attributes of a learner that decide on batches."""

    seed: int
    batch: int | None
    epochs: int
    steps: int | None
    stragglers: float
    device: torch.device

    @property
    def parts(self) -> Mapping[str, Held]:
        """Samples of all peers in each part."""
        ...


def schedule_batches(
    learner: Scheduled,
    peers: Sequence[str],
    *,
    round: int,
    active: torch.Tensor | None,
    only: int | None = None,
    whole: bool = False,
) -> BatchSchedule:
    """Return the batches of every peer in a round, or the one of number ``only``; idle peers have none.

    Parameters
    ----------
    learner, peers, round, active
        As in :meth:`p2pfl.learning.TorchLearner.fit`.
    only
        Number of the single batch to return.
    whole
        True if that batch is the whole training part instead.
    """
    check_batch(learner.batch)
    part = learner.parts["train"].of(tuple(peers))
    held = part.counts  # [R]
    widths = np.minimum(held, held.max(initial=0) if whole or learner.batch is None else learner.batch)  # [R]
    each = -(-held // np.maximum(widths, 1))  # [R]
    awake = np.full(len(peers), fill_value=True) if active is None else active.cpu().numpy()
    busy = awake & (held > 0)  # [R]
    first = 0 if only is None or whole else only
    counts = np.where(busy, 1, 0) if only is not None else np.where(busy, _work(learner, peers, round, each), 0)
    epochs = np.where(widths < held, -(-(first + counts) // np.maximum(each, 1)), 0) * (counts > 0)
    drawn = orders(held, epochs, seed=learner.seed, peers=tuple(peers), round=round, device=learner.device)
    return BatchSchedule(part, widths, counts, first, drawn)


def _work(learner: Scheduled, peers: Sequence[str], round: int, each: IntArray) -> IntArray:
    """Return the steps of every peer in a round, given those in an epoch, ``[R]``."""
    most = learner.epochs if learner.steps is None else learner.steps
    done = np.full(len(peers), most)
    if learner.stragglers:
        some = partial(share_of_work, seed=learner.seed, round=round, share=learner.stragglers, most=most)
        done = np.array([some(peer) for peer in peers])
    return done * each if learner.steps is None else done
