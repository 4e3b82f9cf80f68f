"""A torch learner with another seed, other epochs or steps, or on the data of all peers."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import Any, Protocol, Self, TypeVar

import torch

from p2pfl.data import Federation, gather
from p2pfl.learning.steps.optimisers import Recipe

MOST = 20_000
"""Steps that the model on pooled data takes at most: enough for what it is compared with."""


class Stepping(Protocol):
    """A learner that takes optimiser steps on batches of its peers' data."""

    recipe: Recipe
    dtype: torch.dtype
    given: Mapping[str, Any] | None
    seed: int
    seeded: bool
    batch: int | None
    epochs: int
    steps: int | None
    clock: int | None
    stragglers: float

    def on(self, federation: Federation) -> Self:
        """Return the same learner on other data of the same shape."""
        ...


T = TypeVar("T", bound=Stepping)


def settings(learner: Stepping) -> dict[str, Any]:
    """Return what a learner does, as keys of ``[learning]``."""
    recipe = learner.recipe
    schedule = recipe.schedule
    if schedule is not None and not isinstance(schedule, str):  # neighbours compare its name
        schedule = f"{schedule.__module__}:{getattr(schedule, '__qualname__', type(schedule).__qualname__)}"
    named = {} if schedule is None else {"name": schedule, "options": dict(recipe.schedule_options)}
    return {
        "schedule": named | {"by": recipe.schedule_by, "warmup": recipe.warmup},
        "max_norm": recipe.max_norm,
        "optimizer": recipe.optimizer if isinstance(recipe.optimizer, str) else recipe.optimizer.__name__.lower(),
        "rate": recipe.rate,
        "options": dict(recipe.options),
        "batch": "all" if learner.batch is None else learner.batch,
        "epochs": learner.epochs,
        "steps": learner.steps,
        "stragglers": learner.stragglers,
        "dtype": "float64" if learner.dtype == torch.float64 else "float32",
    }


def adjust_learner(learner: T, *, seed: int, epochs: int | None, steps: int | None, full_batch: bool) -> T:
    """Return a learner with a seed where it has none, and with epochs or steps where they are given."""
    made = copy.copy(learner)
    if not learner.seeded:
        if learner.given is not None:
            made = learner.on(gather(learner.given, seed=seed))
        made.seed, made.seeded = seed, True
    if epochs is not None or steps is not None:
        made.epochs, made.steps = learner.epochs if epochs is None else epochs, steps
    if full_batch:
        made.batch, made.epochs, made.steps = None, 1, None
    return made


def pool_learner(learner: T, federation: Federation, *, peers: int, rounds: int) -> T:
    """Return the learner of one peer that does in a round what ``peers`` do together, and waits for nobody.

    A schedule by step counts the steps of a peer of mean size, so that it is as far in a round as those of the peers.
    """
    made = learner.on(federation)
    made.stragglers = 0.0
    size = int(federation.samples(federation.peers)[0])
    mean = math.ceil(size / peers)
    made.clock = learner.epochs * math.ceil(mean / (learner.batch or mean)) if learner.steps is None else learner.steps
    steps = (
        learner.epochs * math.ceil(size / (learner.batch or size)) if learner.steps is None else learner.steps * peers
    )
    if steps * rounds > MOST and (learner.batch is not None or learner.steps is not None):
        made.steps = max(1, MOST // rounds)
    elif learner.steps is not None:
        made.steps = steps
    return made
