""":class:`PartyNetwork`, the modules of one party of a split network, and :class:`PartyTraining`, their training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from p2pfl.core.draws import draw, keys, subkeys
from p2pfl.core.encodings import Floats
from p2pfl.core.errors import ModelError
from p2pfl.core.rows import Layout
from p2pfl.learning.dropout import key_dropout
from p2pfl.learning.steps.optimisers import Recipe, StackedUpdate, StepClock
from p2pfl.plugins.exact.tensor_model import Shapes

NETWORK, MEMORY = "network.", "memory."
"""Beginnings of the names of the tensors of a network and of its optimiser."""


@dataclass(frozen=True)
class SplitSteps:
    """Steps of the parties of a split network in a round, on which they agree.

    Parameters
    ----------
    recipe
        Optimiser, learning rate and schedule.
    batch
        Rows of a step; ``None`` for all of them.
    epochs
        Passes over the rows in a round.
    steps
        Steps in a round, instead of ``epochs``.
    seed
        Seed of batches, of absences and of dropout.
    absent
        Chance with which a party is left out of a step.
    dtype, device
        Number type of the networks, and where they train.
    """

    recipe: Recipe
    batch: int | None = 32
    epochs: int = 1
    steps: int | None = None
    seed: int = 0
    absent: float = 0.0
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")  # noqa: RUF009 (it is immutable)

    def count(self, rows: int) -> int:
        """Return the number of steps in a round.

        Examples
        --------
        >>> SplitSteps(Recipe(), batch=32, epochs=2).count(100)
        8
        """
        return self.epochs * -(-rows // (self.batch or rows)) if self.steps is None else self.steps

    def batches(self, rows: int, *, round: int) -> list[np.ndarray]:
        """Return the places of the rows of each step, in the common order of all parties."""
        width = self.batch or rows
        each, count = -(-rows // width), self.count(rows)
        orders: dict[int, np.ndarray] = {}
        chosen = []
        for step in range(round * count, (round + 1) * count):
            epoch, within = divmod(step, each)
            if epoch not in orders:
                orders = {epoch: draw(self.seed, "split batches", round=epoch).permutation(rows)}
            chosen.append(orders[epoch][within * width : (within + 1) * width])
        return chosen

    def present(self, peer: str, count: int, *, round: int) -> np.ndarray:
        """Return whether a party takes part in each of the steps of a round, ``[count]`` bool."""
        return np.asarray(draw(self.seed, "absent", peer, round).random(count) >= self.absent)


class PartyNetwork(nn.Module):
    """Torch modules of one party.

    Parameters
    ----------
    bottom
        Module from the party's columns ``[B, F]`` to its part of the embedding ``[B, k]``; ``None`` without columns.
    top
        Module from the embedding to the outputs, at the label holder; ``None`` elsewhere.
    width
        k.
    """

    def __init__(self, bottom: nn.Module | None, top: nn.Module | None, *, width: int) -> None:
        super().__init__()
        self.bottom, self.top, self.width = bottom, top, width

    def embed(self, columns: torch.Tensor) -> torch.Tensor:
        """Return the party's part of the embedding, ``[B, k]``.

        Raises
        ------
        ModelError
            The bottom module returns something else.
        """
        if self.bottom is None:
            return columns.new_zeros(columns.shape[0], self.width)  # len() would fix the number of rows of an export
        part: torch.Tensor = self.bottom(columns)
        if part.shape != (columns.shape[0], self.width):
            raise ModelError(
                f"the bottom network returns {tuple(part.shape)} for {len(columns)} rows, and all parties must return "
                f"{self.width} numbers for each; change its last layer, or model.options.width"
            )
        return part

    def output(self, embedding: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the top module, which the label holder alone has."""
        assert self.top is not None  # noqa: S101 (asked of the label holder)
        outputs: torch.Tensor = self.top(embedding)
        return outputs

    def forward(self, columns: torch.Tensor) -> torch.Tensor:
        """Return the outputs with nobody else's part, or without a top the part of the embedding."""
        embedding = self.embed(columns)
        return embedding if self.top is None else self.output(embedding)


class PartyTraining:
    """Network of one party with its optimiser, in one round.

    Parameters
    ----------
    network
        The network with its initial values.
    steps
        Steps of all parties.
    peer, round
        Name of the party, and number of the round.
    tensors
        What :meth:`tensors` returned after the last round; ``None`` in the first one.
    """

    def __init__(
        self,
        network: PartyNetwork,
        steps: SplitSteps,
        *,
        peer: str,
        round: int = 0,
        tensors: Mapping[str, Floats] | None = None,
    ) -> None:
        self.network, self.steps, self.peer, self.round = network.to(steps.device, steps.dtype), steps, peer, round
        self.dropouts = [*key_dropout(self.network).values()]
        if tensors is not None:
            kept, state = _below(NETWORK, tensors), self.network.state_dict()
            self.network.load_state_dict(
                {name: each.to(state[name]).view_as(state[name]) for name, each in kept.items()}
            )
        trained = {name: each for name, each in self.network.named_parameters() if each.requires_grad}
        if not trained:
            raise ModelError(f"the network of {peer} has nothing to train; add a layer with parameters")
        self.parameters = [*trained.values()]
        self.layout = Layout(tuple(trained), tuple(tuple(each.shape) for each in self.parameters))
        row = self.layout.join({name: each.detach().unsqueeze(0).clone() for name, each in trained.items()})  # [1, P]
        self.parts = [*self.layout.split(row).values()]
        for parameter, part in zip(self.parameters, self.parts, strict=True):
            parameter.data = part[0]
        memory = {} if tensors is None else _below(MEMORY, tensors)
        self.update = self._update(
            self.parts, {name: each.to(steps.dtype).to(steps.device) for name, each in memory.items()}
        )

    def _update(self, parts: Sequence[torch.Tensor], memory: Mapping[str, torch.Tensor]) -> StackedUpdate:
        kept = {name: each.unsqueeze(0) if len(each) == self.layout.size else each for name, each in memory.items()}
        recipe = self.steps.recipe
        settings = recipe.settings(self.round)
        return StackedUpdate(
            recipe.kind, settings, parts=parts, layout=self.layout, memory=kept, labels=np.zeros(1, np.int64)
        )

    @property
    def shapes(self) -> Shapes:
        """Shapes of :meth:`tensors` by name, those of the optimiser after a step included."""
        copies = [part.clone() for part in self.parts]
        trial = self._update(copies, {})
        trial.step(copies, [torch.zeros_like(part) for part in copies])
        memory = {f"{MEMORY}{name}": tuple(each[0].shape) or (1,) for name, each in trial.memory().items()}
        return {
            f"{NETWORK}{name}": tuple(each.shape) or (1,) for name, each in self.network.state_dict().items()
        } | memory

    def tensors(self) -> dict[str, Floats]:
        """Return the numbers of the network and of the optimiser by name, float64."""
        memory = {f"{MEMORY}{name}": each[0] for name, each in self.update.memory().items()}
        state = {f"{NETWORK}{name}": each for name, each in self.network.state_dict().items()} | memory
        return {name: np.atleast_1d(each.detach().cpu().double().numpy()) for name, each in state.items()}

    def begin(self, step: int) -> None:
        """Set the network to training, with the dropout of a step."""
        self.network.train()
        [key] = subkeys(keys(self.steps.seed, "dropout", (self.peer,), self.round), step)
        for dropout in self.dropouts:
            dropout.calls, dropout.key = 0, torch.tensor(int(key))

    def move(self, gradients: Sequence[torch.Tensor | None], step: int, clock: StepClock) -> None:
        """Take an optimiser step by the gradient of each parameter, ``None`` for zero."""
        recipe = self.steps.recipe
        if recipe.paced:
            self.update.pace([recipe.at(self.round, step, clock)])
        known = zip(gradients, self.parts, strict=True)
        slopes = [torch.zeros_like(part) if each is None else each.view_as(part) for each, part in known]
        self.update.step(self.parts, slopes)

    @torch.no_grad()
    def embedding(self, columns: torch.Tensor) -> torch.Tensor:
        """Return the party's part of the embedding without dropout, ``[n, k]``."""
        return self.network.eval().embed(columns)

    @torch.no_grad()
    def outputs(self, embedding: torch.Tensor) -> torch.Tensor:
        """Return the outputs for embeddings without dropout; at the label holder alone."""
        return self.network.eval().output(embedding)


def _below(prefix: str, tensors: Mapping[str, Floats]) -> dict[str, torch.Tensor]:
    """Return the tensors whose names begin with a prefix, without it."""
    named = {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}
    return {name: torch.from_numpy(np.array(each)) for name, each in named.items()}
