"""Proof on the first batch of each peer that a fast engine computes what plain torch does.

One pass of the module itself covers the batches of many peers: the losses are those of each peer, and one backward pass
gives the sum of their gradients under keyed signs. The sum of the engine's gradients under the same signs differs where
the gradient of any peer does. So a proof takes about as long as three steps of the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch

from p2pfl.core.process import spread
from p2pfl.core.rows import keys, subkeys, to_device
from p2pfl.data import IntArray
from p2pfl.learning.losses import PerSample
from p2pfl.learning.steps.autograd import Plain
from p2pfl.learning.steps.batching import Batch, StepPlan
from p2pfl.learning.steps.kernels import Kernels
from p2pfl.learning.steps.perceptrons import Perceptrons
from p2pfl.learning.steps.torch_func import Stacked
from p2pfl.learning.steps.training import Trainable, Work, first_step, intra_op
from p2pfl.learning.trials.gradient_comparison import AGAIN, ATTEMPTS, Tolerance, perturb_row

TOGETHER = 64
"""Most peers in one pass: among more, one wrong gradient would be lost in the rounding of the others."""

ALONE = 32
"""Most peers of a model with dropout whose steps are taken one by one; the masks belong to places in their batch."""


Compared = Kernels | Stacked | Perceptrons
"""Engines that do not run the module itself."""


class Provable(Trainable, Protocol):
    """Attributes of a learner that a proof needs."""

    loss: PerSample


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

    plain: Plain
    initial: torch.Tensor
    tolerance: Tolerance
    _proven: dict[type, set[str]] = field(default_factory=dict, init=False)
    _stepped: int = field(default=0, init=False)

    def knows(self, peers: Sequence[str], engine: object) -> bool:
        """Return whether an engine has been compared for all of some peers."""
        return isinstance(engine, Plain) or self._proven.get(type(engine), set()).issuperset(peers)

    def holds(self, work: Work, *, learner: Provable, engine: Plain | Compared) -> bool:
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
        if isinstance(engine, Plain):
            return True
        proven = self._proven.setdefault(type(engine), set())
        new = [row for row in np.flatnonzero(work.schedule.counts).tolist() if work.peers[row] not in proven]
        if not new:
            return True
        width = int(work.schedule.widths[new].max())
        size = max(1, min(TOGETHER, engine.block(width)))
        same: list[bool] = []

        def compare(_: int, chosen: IntArray) -> None:
            rows = (perturb_row(self.initial, attempt) for attempt in range(ATTEMPTS))
            same.append(any(self._holds(_Case(work, learner, engine, chosen=chosen, row=row)) for row in rows))
            proven.update(work.peers[row] for row in chosen if same[-1])

        inner = intra_op(learner.products * width, workers=1)
        for low in range(0, len(new), size):
            spread(compare, [np.array(new[low : low + size])], workers=1, inner=inner)
            if not same[-1]:
                return False
        return True

    def _holds(self, case: _Case) -> bool:
        """Return whether an engine is right about some rows."""
        model = self.plain.model
        model.train()
        losses, gradients = case.stepped()
        if not all(AGAIN.equal(*both) for both in zip((losses, gradients), case.stepped(), strict=True)):
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
            found = [case.outputs(), case.outputs()]
            expected = model(case.features)
        return AGAIN.equal(*found) and self.tolerance.equal(found[0], expected)

    def _sums(self, case: _Case) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of each row ``[K]``, and the sum of their gradients under signs ``[P]``, by the model."""
        self.plain.bind(case.parts)
        with self.plain.autocast():
            outputs = self.plain.model(case.features)
        each = case.learner.loss(outputs.to(case.parts[0].dtype), case.targets)  # [S]
        device, sizes = each.device, torch.from_numpy(case.sizes)
        owner = to_device(torch.repeat_interleave(sizes), device)  # [S]
        share = (1 / to_device(sizes, device).to(each.dtype))[owner]  # [S]
        mean = each.new_zeros(len(sizes)).index_add(0, owner, each * share)  # [K]
        found = torch.autograd.grad(mean @ case.signs.to(mean.dtype), self.plain.parameters, allow_unused=True)
        flat = [
            part.new_zeros(part[0].numel()) if gradient is None else gradient.flatten()
            for gradient, part in zip(found, case.parts, strict=True)
        ]
        return mean.detach(), torch.cat(flat)

    def _same_rows(self, case: _Case, losses: torch.Tensor, gradients: torch.Tensor) -> bool:
        """Return whether losses and gradients of single rows with dropout are right, for the first few peers."""
        sizes = case.sizes.tolist()
        pieces = zip(torch.split(case.features, sizes), torch.split(case.targets, sizes), strict=True)
        for row, (x, y) in enumerate(pieces):
            if self._stepped >= ALONE:
                break
            self._stepped += 1
            batch = Batch(x.unsqueeze(0), y.unsqueeze(0), None, case.keys[row : row + 1])
            loss, slopes = self.plain.gradient(case.parts, batch)
            slope = torch.cat([each.flatten() for each in slopes])
            if not (self.tolerance.equal(losses[row], loss[0]) and self.tolerance.equal(gradients[row], slope)):
                return False
        return True


class _Case:
    """First batches of some peers at one row.

    Parameters
    ----------
    work
        Rows, of which only the batches count.
    learner
        Learner of the peers.
    engine
        Engine that is compared.
    chosen
        Numbers of the rows.
    row
        Parameters, ``[P]``.
    """

    def __init__(self, work: Work, learner: Provable, engine: Compared, *, chosen: IntArray, row: torch.Tensor) -> None:
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

    def stepped(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the losses ``[K]`` and the gradients ``[K, P]`` of the engine."""
        losses, gradients = first_step(self.work, learner=self.learner, engine=self.engine, chosen=self.chosen)
        return losses.clone(), gradients.clone()

    def outputs(self) -> torch.Tensor:
        """Return the outputs of the engine in evaluation, ``[S, *outputs]``."""
        engine = self.engine.kernels if isinstance(self.engine, Perceptrons) else self.engine
        return engine.outputs(self.parts, self.features, shared=True)[0].clone()

    @property
    def signs(self) -> torch.Tensor:
        """A keyed sign for each row, ``[K]``."""
        drawn = keys(self.learner.seed, "proof", self.work.peers, self.work.round)[self.chosen]
        return to_device(torch.from_numpy(1 - 2 * (drawn & 1)), self.features.device)

    @property
    def keys(self) -> torch.Tensor:
        """Keys of dropout in this step, ``[K]``."""
        drawn = keys(self.learner.seed, "dropout", self.work.peers, self.work.round)[self.chosen]
        return subkeys(to_device(torch.from_numpy(drawn), self.features.device), self.work.first)


OTHERWISE = (
    "the batched computation of this model differs from torch's own on the first batch of a peer, so that models train "
    "one after the other, which takes longer"
)
"""Warning about an engine that is not used."""
