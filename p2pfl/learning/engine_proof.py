"""Proof on the first batch of each peer that a fast engine computes what plain torch does.

One pass of the module itself covers the batches of many peers: the losses are those of each peer, and one backward pass
gives the sum of their gradients under keyed signs. The sum of the engine's gradients under the same signs differs where
the gradient of any peer does. So a proof takes about as long as three steps of the engine.

What the module does for later samples alone shows in :func:`repeatable`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch

from p2pfl.core.draws import keys, subkeys
from p2pfl.core.errors import ModelError
from p2pfl.core.process import find_used_generators, generators, spread
from p2pfl.core.rows import to_device
from p2pfl.data import IntArray
from p2pfl.learning.engine_trial import MAX_ATTEMPTS, TOLERANCE_OF_REPEATS, Tolerance, perturb_row
from p2pfl.learning.modules.hidden_state import CHANGE_SENTENCE, DROPOUT_REMEDY, ModelState
from p2pfl.learning.steps.autograd import PlainEngine
from p2pfl.learning.steps.batching import Batch, StepPlan
from p2pfl.learning.steps.kernels import Kernels
from p2pfl.learning.steps.perceptrons import Perceptrons
from p2pfl.learning.steps.torch_func import StackedEngine
from p2pfl.learning.steps.training import StackedLearner, Work, first_step, intra_op

Result = TypeVar("Result")

MAX_COMPARED = 64
"""Most peers in one pass: among more, one wrong gradient would be lost in the rounding of the others."""

MAX_ALONE = 32
"""Most peers of a model with dropout whose steps are taken one by one; the masks belong to places in their batch."""

FastEngine = Kernels | StackedEngine | Perceptrons
"""Engines that do not run the module itself."""

SLOWER_SENTENCE = (
    "the batched computation of this model differs from torch's own on the first batch of a peer, so that models train "
    "one after the other, which takes longer"
)
"""Warning about an engine that is not used."""


@dataclass
class EngineProof:
    """Peers on whose first batch an engine has been compared with plain torch.

    Parameters
    ----------
    plain
        Engine that runs the model itself.
    initial
        Row of the comparison, ``[P]``.
    tolerance
        Differences that count as rounding.
    """

    plain: PlainEngine
    initial: torch.Tensor
    tolerance: Tolerance
    _proven: dict[type, set[str]] = field(default_factory=dict, init=False)
    _alone: int = field(default=0, init=False)

    def knows(self, peers: Sequence[str], engine: object) -> bool:
        """Return whether there is nothing to compare: an engine is right for all of some peers, or is no fast one."""
        return not isinstance(engine, FastEngine) or self._proven.get(type(engine), set()).issuperset(peers)

    def holds(self, work: Work, *, learner: StackedLearner, engine: PlainEngine | FastEngine) -> bool:
        """Return whether an engine computes the first steps of a round as plain torch does, for peers that are new.

        Each engine is called twice, and is compared in training and in evaluation. The model is in evaluation mode
        afterwards if there was anything to do.

        Parameters
        ----------
        work
            Rows, of which only the batches count.
        learner
            Learner of the peers.
        engine
            Engine that is about to take the steps.
        """
        if not isinstance(engine, FastEngine):
            return True
        proven = self._proven.setdefault(type(engine), set())
        new = [row for row in np.flatnonzero(work.schedule.counts).tolist() if work.peers[row] not in proven]
        if not new:
            return True
        width = int(work.schedule.widths[new].max())
        size = max(1, min(MAX_COMPARED, engine.block(width)))
        same: list[bool] = []

        def compare(_: int, chosen: IntArray) -> None:
            rows = (perturb_row(self.initial, attempt) for attempt in range(MAX_ATTEMPTS))
            same.append(any(self._agrees(_Case(work, learner, engine, chosen, row)) for row in rows))
            proven.update(work.peers[row] for row in chosen if same[-1])

        inner = intra_op(learner.products * width, workers=1)
        for low in range(0, len(new), size):
            spread(compare, [np.array(new[low : low + size])], workers=1, inner=inner)
            if not same[-1]:
                return False
        return True

    def _agrees(self, case: _Case) -> bool:
        """Return whether an engine is right about some rows."""
        model = self.plain.model
        model.train()
        (losses, gradients), again = case.step(), case.step()
        if not (TOLERANCE_OF_REPEATS.equal(losses, again[0]) and TOLERANCE_OF_REPEATS.equal(gradients, again[1])):
            return False
        if any(dropout.p > 0 for dropout in case.learner.dropouts.values()):
            same = self._same_rows(case, losses, gradients)
        else:
            mean, total = self._sums(case)
            signed = case.signs.to(gradients) @ gradients  # [P]
            scale = float(torch.linalg.vector_norm(gradients))
            same = self.tolerance.equal(losses, mean) and self.tolerance.equal(signed, total, scale=scale)
        if not same:
            return False
        model.eval()
        self.plain.bind(case.parts)
        with torch.no_grad(), self.plain.autocast():
            outputs, repeated = case.outputs(), case.outputs()
            expected = model(case.features)
        return TOLERANCE_OF_REPEATS.equal(outputs, repeated) and self.tolerance.equal(outputs, expected)

    def _sums(self, case: _Case) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of each row ``[K]``, and the sum of their gradients under signs ``[P]``, by the model."""
        self.plain.bind(case.parts)
        with self.plain.autocast():
            outputs = self.plain.model(case.features)
        each = case.learner.loss(outputs.to(case.parts[0].dtype), case.targets)  # [S]
        sizes = torch.from_numpy(case.sizes)
        owner = to_device(torch.repeat_interleave(sizes), each.device)  # [S]
        share = (1 / to_device(sizes, each.device).to(each.dtype))[owner]  # [S]
        mean = each.new_zeros(len(sizes)).index_add(0, owner, each * share)  # [K]
        slopes = torch.autograd.grad(mean @ case.signs.to(mean.dtype), self.plain.parameters, allow_unused=True)
        flat = [
            part.new_zeros(part[0].numel()) if slope is None else slope.flatten()
            for slope, part in zip(slopes, case.parts, strict=True)
        ]
        return mean.detach(), torch.cat(flat)

    def _same_rows(self, case: _Case, losses: torch.Tensor, gradients: torch.Tensor) -> bool:
        """Return whether losses and gradients of single rows with dropout are right, for the first few peers."""
        sizes = case.sizes.tolist()
        samples = zip(torch.split(case.features, sizes), torch.split(case.targets, sizes), strict=True)
        for row, (x, y) in enumerate(samples):
            if self._alone >= MAX_ALONE:
                break
            self._alone += 1
            batch = Batch(x.unsqueeze(0), y.unsqueeze(0), None, case.keys[row : row + 1])
            loss, slopes = self.plain.gradient(case.parts, batch)
            slope = torch.cat([each.flatten() for each in slopes])
            if not (self.tolerance.equal(losses[row], loss[0]) and self.tolerance.equal(gradients[row], slope)):
                return False
        return True


class _Case:
    """First batches of some peers, given by their numbers, at one row ``[P]``."""

    def __init__(
        self, work: Work, learner: StackedLearner, engine: FastEngine, chosen: IntArray, row: torch.Tensor
    ) -> None:
        self.learner, self.engine, self.chosen = learner, engine, chosen
        start = to_device(row, work.rows.device).expand(len(work.rows), -1)
        schedule = replace(work.schedule, counts=np.minimum(work.schedule.counts, 1))
        self.work = Work(start, {}, schedule, work.peers, work.round, work.first)
        plan = StepPlan(schedule, chosen)
        self.sizes: IntArray = plan.sizes[0]  # [K]
        index = plan.index(0)  # [K, B]
        real = to_device(torch.arange(index.shape[1]) < torch.from_numpy(self.sizes).unsqueeze(1), index.device)
        self.features, self.targets = learner.features[index[real]], learner.targets[index[real]]  # [S, ...]
        self.parts = [part.clone() for part in learner.layout.split(start[:1]).values()]

    def step(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the losses ``[K]`` and the gradients ``[K, P]`` of the engine."""
        return first_step(self.work, learner=self.learner, engine=self.engine, chosen=self.chosen)

    def outputs(self) -> torch.Tensor:
        """Return the outputs of the engine in evaluation, ``[S, *outputs]``."""
        kernels = self.engine.kernels if isinstance(self.engine, Perceptrons) else None
        engine = kernels or self.engine
        return engine.outputs(self.parts, self.features, shared=True)[0]

    def _draw(self, purpose: str) -> IntArray:
        return keys(self.learner.seed, purpose, self.work.peers, self.work.round)[self.chosen]

    @property
    def signs(self) -> torch.Tensor:
        """A keyed sign for each row, ``[K]``."""
        return to_device(torch.from_numpy(1 - 2 * (self._draw("proof") & 1)), self.features.device)

    @property
    def keys(self) -> torch.Tensor:
        """Keys of dropout in this step, ``[K]``."""
        return subkeys(to_device(torch.from_numpy(self._draw("dropout")), self.features.device), self.work.first)


def repeatable(
    compute: Callable[[], Result],
    *,
    numbers: Callable[[Result], Sequence[torch.Tensor]],
    state: Callable[[], ModelState],
    by: str,
) -> Result:
    """Return the result of a computation that runs code of the user, if it depends on no generator and no state.

    Other threads of the process may draw meanwhile, and rewinding a generator would disturb them; and a model may keep
    what it computes from shapes. So a computation during which a global generator or the state of the model changes
    runs a second time: if it gives the same result, it does not depend on them.

    Parameters
    ----------
    compute
        Function that computes the same from the same start each time it is called.
    numbers
        Function that returns the tensors of a result to compare.
    state
        Function that returns the state of the model now.
    by
        Whose code runs, for the message.

    Raises
    ------
    ModelError
        A generator moves or the state changes, and the results differ.
    """
    drawn, before = generators(), state()
    result = compute()
    changed = before.find_change(state())
    if not find_used_generators(drawn) and changed is None:
        return result
    drawn = generators()
    again = compute()
    sources = find_used_generators(drawn)
    same = all(TOLERANCE_OF_REPEATS.equal(*both) for both in zip(numbers(result), numbers(again), strict=True))
    if same or (changed is None and not sources):
        return result
    if changed is not None:
        raise ModelError(CHANGE_SENTENCE.format(changed))
    raise ModelError(f"{by} draws from {sources[0]} global generator; {DROPOUT_REMEDY}")
