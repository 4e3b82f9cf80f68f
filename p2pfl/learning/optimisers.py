"""Any elementwise torch optimiser, on a stack of rows.

An elementwise optimiser does not know whether the tensor it updates is one model's or many
models' on top of each other, so the optimisers of torch itself run on ``[K, *shape]``. Only two
things need care: rows that sit out must not move, and rows may differ in how many steps they have
taken, which Adam and its kin keep as one number per tensor. So rows of equal counts are updated
together, group by group, and a row's state is kept under its own index, in ``memory``.
"""

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import optim

from p2pfl.data.imported import told
from p2pfl.errors import ModelError
from p2pfl.learning.learner import Memory
from p2pfl.rows import Layout

ELEMENTWISE: Mapping[str, type[optim.Optimizer]] = {
    kind.__name__.lower(): kind
    for kind in (
        optim.SGD,
        optim.Adam,
        optim.AdamW,
        optim.RMSprop,
        optim.Adagrad,
        optim.Adadelta,
        optim.Adamax,
        optim.NAdam,
        optim.RAdam,
        optim.Rprop,
        optim.ASGD,
    )
}


@dataclass(frozen=True)
class Recipe:
    """Which optimiser, at which rate, on which schedule.

    Parameters
    ----------
    optimizer
        Name of an elementwise optimiser of :mod:`torch.optim`, in lower case, or its class.
    rate
        Learning rate of round 0.
    options
        Further arguments of the optimiser, such as ``momentum``.
    schedule
        Name of a class of :mod:`torch.optim.lr_scheduler`, stepped once a round, or ``None``.
    schedule_options
        Arguments of the schedule.

    Raises
    ------
    ModelError
        If the optimiser is not elementwise, or if it or the schedule refuses its arguments.

    Examples
    --------
    >>> recipe = Recipe("sgd", rate=1.0, schedule="StepLR", schedule_options={"step_size": 2, "gamma": 0.5})
    >>> [recipe.settings(round)["lr"] for round in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    optimizer: str | type[optim.Optimizer] = "sgd"
    rate: float = 0.1
    options: Mapping[str, object] = field(default_factory=dict)
    schedule: str | None = None
    schedule_options: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given: dict[str, object] = {"rate": self.rate}
        given |= {f"options.{key}": value for key, value in self.options.items()}
        given |= {f"schedule_options.{key}": value for key, value in self.schedule_options.items()}
        for key, value in given.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ModelError(f"expected a finite number as learning.{key}, got {value}: change it")
        self.settings(0)

    def check(self, rounds: int) -> None:
        """Look ahead to the last of ``rounds`` rounds, for a schedule that ends before them.

        Raises
        ------
        ModelError
            If the schedule refuses to be stepped so often, or leaves the finite, non-negative rates.
        """
        if self.schedule is not None:
            self.settings(rounds - 1)

    @cached_property
    def kind(self) -> Callable[..., optim.Optimizer]:
        """The optimiser's class."""
        name = self.optimizer if isinstance(self.optimizer, str) else self.optimizer.__name__
        kind = ELEMENTWISE.get(name.lower())
        if kind is None or self.optimizer not in (name, kind):
            raise ModelError(
                f"expected learning.optimizer to treat every number of a row alike, as {', '.join(ELEMENTWISE)} do, "
                f"got {name!r}; choose one of these"
            )
        return kind

    def settings(self, round: int) -> Mapping[str, object]:
        """Arguments of the optimiser in one round: the schedule stepped ``round`` times."""
        if self.schedule is None:
            return self._constant
        optimiser = self._opened()
        kind: Any = getattr(optim.lr_scheduler, self.schedule, None)
        known = isinstance(kind, type) and issubclass(kind, optim.lr_scheduler.LRScheduler)
        if not known or kind in (optim.lr_scheduler.LRScheduler, optim.lr_scheduler.ReduceLROnPlateau):
            raise ModelError(
                "expected learning.schedule to name a class of torch.optim.lr_scheduler that depends on the round "
                f"alone, got {self.schedule!r}: try 'CosineAnnealingLR'"
            )
        try:
            schedule = kind(optimiser, **self.schedule_options)
            for _ in range(round):
                optimiser.step()  # nothing has a gradient; the schedule only wants it called first
                schedule.step()
        except Exception as error:
            raise ModelError(
                f"expected options with which learning.schedule {self.schedule} makes {round + 1} rounds, got "
                f"{told(error, module='')}; mend learning.schedule_options"
            ) from error
        settings = self._read(optimiser)
        if not 0 <= float(settings["lr"]) < math.inf:  # type: ignore[arg-type]
            raise ModelError(
                f"expected learning.schedule {self.schedule} to keep the rate finite and not negative, got "
                f"{settings['lr']} in round {round}: mend learning.schedule_options"
            )
        return settings

    def _opened(self) -> optim.Optimizer:
        """Return the optimiser on one number, to see what it makes of its arguments."""
        kind = self.kind
        try:
            return kind([torch.zeros(1, requires_grad=True)], lr=self.rate, **self.options)
        except Exception as error:
            raise self._refused(error) from error

    def attempt(self, dtype: torch.dtype) -> None:
        """Take a step on one number, for some arguments are looked at no earlier."""
        if self._plain:
            return
        number = torch.zeros(1, dtype=dtype)
        number.grad = torch.ones_like(number)
        try:
            self.kind([number], **self.settings(0)).step()
        except Exception as error:
            raise self._refused(error) from error

    def _refused(self, error: Exception) -> ModelError:
        return ModelError(
            f"expected arguments that learning.optimizer {self.optimizer!r} takes, got "
            f"{told(error, module='')}; mend learning.rate or learning.options"
        )

    def _read(self, optimiser: optim.Optimizer) -> Mapping[str, object]:
        taken = inspect.signature(self.kind).parameters
        return {name: value for name, value in optimiser.param_groups[0].items() if name in taken and name != "params"}

    @cached_property
    def _constant(self) -> Mapping[str, object]:
        if not self._plain:
            return self._read(self._opened())
        taken = inspect.signature(self.kind).parameters.values()
        return {each.name: each.default for each in taken if each.name != "params"} | {"lr": self.rate}

    @cached_property
    def _plain(self) -> bool:
        """Whether there is nothing to try out: the first optimiser has torch import its compiler, a second of work."""
        usual = 0 <= self.rate < 1e4  # no type of numbers overflows
        return usual and self.kind is optim.SGD and not self.options and self.schedule is None

    @cached_property
    def stateless(self) -> bool:
        """Whether it is plain gradient descent, which keeps nothing from step to step."""
        settings = self.settings(0)
        return self.kind is optim.SGD and not settings["momentum"] and not settings["maximize"]

    def groups(self, memory: Memory, size: int) -> np.ndarray:
        """Label ``[R]``: rows with equal labels have equal counts and may be updated together."""
        scalars = [value.cpu().numpy() for _, value in sorted(memory.items()) if value.dim() == 1]
        if self.stateless or not scalars:
            return np.zeros(size, dtype=np.int64)  # [R]
        labels: np.ndarray = np.unique(np.stack(scalars, axis=1), axis=0, return_inverse=True)[1].reshape(-1)  # [R]
        return labels


class PlainUpdate:
    r"""Gradient descent :math:`x \leftarrow x - \eta (g + \lambda x)`, bit for bit as :class:`torch.optim.SGD`.

    Calling torch's class costs 20 to 60 microseconds a step, as much as the gradient of a whole block.
    """

    def __init__(self, settings: Mapping[str, object]) -> None:
        self.rate = float(settings["lr"])  # type: ignore[arg-type]
        self.decay = float(settings["weight_decay"])  # type: ignore[arg-type]

    def narrow(self, active: int) -> None:
        """Nothing is kept for rows, so nothing is laid aside."""

    def step(self, parts: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Move ``parts`` in place."""
        for part, gradient in zip(parts, gradients, strict=True):
            slope = gradient.add(part, alpha=self.decay) if self.decay else gradient
            part.add_(slope, alpha=-self.rate)

    def memory(self) -> dict[str, torch.Tensor]:
        """Nothing."""
        return {}


class StackedUpdate:
    """One of torch's optimisers on the K rows of a block, a group of equal counts at a time.

    Parameters
    ----------
    kind, settings
        The optimiser and its arguments in this round.
    parts
        The trained tensors, each ``[K, *shape]``, changed in place.
    layout
        How they lie in a row.
    memory
        State of these K rows; empty for a fresh start.
    labels
        ``[K]``: adjacent rows with equal labels form a group.
    """

    def __init__(
        self,
        kind: Callable[..., optim.Optimizer],
        settings: Mapping[str, object],
        *,
        parts: Sequence[torch.Tensor],
        layout: Layout,
        memory: Memory,
        labels: np.ndarray,
    ) -> None:
        self.kind, self.settings, self.layout = kind, settings, layout
        self.parts = list(parts)
        self.counts = kind is not optim.SGD  # all others count their steps themselves
        size = len(labels)
        self.kept: dict[str, torch.Tensor] = {name: value.clone() for name, value in memory.items()}  # [K, P] or [K]
        self.kept.setdefault("step", torch.zeros(size, dtype=torch.float64))  # [K]
        cuts = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), size]
        self.bounds = [(low, high) for low, high in pairwise(cuts) if low < high]
        self.optimisers = [self._open(low, high) for low, high in self.bounds]

    def _open(self, low: int, high: int) -> optim.Optimizer:
        """Return an optimiser on the rows ``low`` to ``high`` with their kept state."""
        params = [part[low:high] for part in self.parts]
        optimiser = self.kind(params, **self.settings)
        if self.kept["step"][low] == 0:
            return optimiser
        stacks = {
            name: list(self.layout.split(value[low:high]).values())
            for name, value in self.kept.items()
            if value.dim() == 2
        }
        for i, param in enumerate(params):
            state = optimiser.state[param]
            for name, value in self.kept.items():
                if value.dim() == 2:
                    state[name] = stacks[name][i].contiguous()
                elif self.counts:
                    state[name] = value[low].to(torch.get_default_dtype())
        return optimiser

    def _keep(self, optimiser: optim.Optimizer, low: int, high: int) -> None:
        """Lay the state of the rows ``low`` to ``high`` aside."""
        states = [optimiser.state[param] for param in optimiser.param_groups[0]["params"]]
        for name, value in states[0].items():
            if not torch.is_tensor(value):
                continue  # SGD notes a momentum of None where it has none
            if value.dim() == 0:
                self.kept.setdefault(name, torch.zeros_like(self.kept["step"]))[low:high] = value.double()
                continue
            stack = dict(zip(self.layout.names, (state[name] for state in states), strict=True))
            joined = self.layout.join(stack)  # [high - low, P]
            if name not in self.kept:
                self.kept[name] = joined.new_zeros(len(self.kept["step"]), joined.shape[1])  # [K, P]
            self.kept[name][low:high] = joined

    def narrow(self, active: int) -> None:
        """From here on only the first ``active`` rows move."""
        for i, (low, high) in enumerate(self.bounds):
            if high > active and low < high:
                self._keep(self.optimisers[i], low, high)
                self.bounds[i] = (low, max(low, active))
                if low < active:
                    self.optimisers[i] = self._open(low, active)

    def step(self, parts: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Move the active rows in place; ``gradients`` are theirs, ``[active, *shape]``."""
        del parts  # the optimisers hold views of them
        for optimiser, (low, high) in zip(self.optimisers, self.bounds, strict=True):
            if low == high:
                continue
            for param, gradient in zip(optimiser.param_groups[0]["params"], gradients, strict=True):
                param.grad = gradient[low:high]
            optimiser.step()
            if not self.counts:
                self.kept["step"][low:high] += 1

    def memory(self) -> dict[str, torch.Tensor]:
        """State of all K rows."""
        self.narrow(0)
        return self.kept
