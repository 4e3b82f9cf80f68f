"""Elementwise torch optimisers on a stack of rows.

An elementwise optimiser updates a tensor of one model and a stack of tensors of many models alike, so the optimisers
of torch itself run on ``[K, *shape]``. Two things need care: idle rows must not move, and rows may have taken
different numbers of steps, which Adam and similar optimisers keep as one number per tensor. Rows of equal counts are
therefore updated together, group by group, and the state of each row is kept under its own index, in ``memory``.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count, pairwise
from numbers import Integral
from typing import Any, Literal

import numpy as np

from p2pfl.core.errors import ModelError
from p2pfl.core.imports import describe_error, import_callable, kind_of
from p2pfl.core.process import one_at_a_time
from p2pfl.core.rows import Layout, to_device
from p2pfl.core.tensors import TORCH_INSTALLED, needs_torch, torch
from p2pfl.learning.learner import Memory

Factor = Callable[..., float]
"""Function that returns a factor of the learning rate, see :class:`OwnSchedule`."""

SCHEDULE_PARAMETERS = ("round", "step", "steps")
"""Parameters by which a schedule of the user's own receives its place in a run."""


@dataclass(frozen=True)
class StepClock:
    """Time of a schedule by step, which goes on from round to round.

    A peer that misses a round, or does a part of it, is at the same time afterwards as one that did all of it.

    Parameters
    ----------
    steps
        Steps of a peer in a whole round.
    counted
        Steps that the clock counts in a round; as many by default. One model on the data of all peers takes more steps
        in a round than a peer, and is as far in its schedule.

    Examples
    --------
    >>> StepClock(5).time(2, 3), StepClock(10, counted=5).time(2, 6)
    (13, 13)
    """

    steps: int
    counted: int | None = None

    def time(self, round: int, step: int) -> int:
        """Return the number of steps before one, from the beginning of the run."""
        counted = self.steps if self.counted is None else self.counted
        return round * counted + step * counted // max(1, self.steps)


class SettingsTable:
    """Settings of an optimiser by number, computed when they are needed.

    Parameters
    ----------
    settings
        Settings in order; the last one is repeated.
    """

    def __init__(self, settings: Iterable[Mapping[str, object]]) -> None:
        self._rest = iter(settings)
        self._computed: list[Mapping[str, object]] = []
        self._alone = one_at_a_time()  # several blocks of rows read it

    def at(self, number: int) -> Mapping[str, object]:
        """Return the settings of a number."""
        with self._alone:
            while len(self._computed) <= number:
                following = next(self._rest, None)
                if following is None:
                    break
                self._computed.append(following)
            return self._computed[min(number, len(self._computed) - 1)]


@dataclass(frozen=True)
class OwnSchedule:
    """Schedule of the user's own: a function that returns the factor of ``learning.rate``.

    The function receives those of these that it has parameters for: ``round`` and ``step`` (of the peer in the round),
    both from 0, and ``steps`` (of the peer in a whole round).

    Parameters
    ----------
    function
        The function.
    name
        Its name, for errors.
    options
        Further keyword arguments.
    takes
        Which of :data:`SCHEDULE_PARAMETERS` it receives.

    Examples
    --------
    >>> OwnSchedule.of(lambda round, step, steps: 1 / (1 + round + step / steps), options={}, by="step").factor(1, 2, 4)
    0.4
    """

    function: Factor
    name: str
    options: Mapping[str, object] = field(default_factory=dict)
    takes: tuple[str, ...] = SCHEDULE_PARAMETERS

    @classmethod
    def of(cls, wanted: str | Factor, *, options: Mapping[str, object], by: str) -> OwnSchedule:
        """Return the schedule of a function, or of its ``package.module:function``.

        Raises
        ------
        ModelError
            The function cannot be imported, has other parameters, or asks for steps of a schedule by round.
        """
        name = wanted if isinstance(wanted, str) else getattr(wanted, "__name__", type(wanted).__name__)
        if isinstance(wanted, str):
            wanted = import_callable(wanted, key="learning.schedule", sought="a function", refused=ModelError)
        if not callable(wanted):
            raise ModelError(f"learning.schedule is {kind_of(wanted)}; give a function, or the name of a schedule")
        parameters = inspect.signature(wanted).parameters
        takes = tuple(count for count in SCHEDULE_PARAMETERS if count in parameters)
        try:
            inspect.signature(wanted).bind(**dict.fromkeys(takes, 0), **options)
        except TypeError as error:
            raise ModelError(
                f"learning.schedule {name} does not accept its arguments ({error}); give it parameters out of "
                f"{', '.join(SCHEDULE_PARAMETERS)}, and the others in learning.schedule.options"
            ) from None
        if "step" in takes and by == "round":
            raise ModelError(
                f'learning.schedule {name} has the parameter step; set learning.schedule.by to "step", or let it '
                "depend on the round alone"
            )
        return cls(wanted, name, options, takes)

    def factor(self, round: int, step: int, steps: int) -> float:
        """Return the factor of the rate at a step.

        Raises
        ------
        ModelError
            The function raises, or returns no number from 0 on.
        """
        counters = {"round": round, "step": step, "steps": steps}
        try:
            factor = float(self.function(**{key: counters[key] for key in self.takes}, **self.options))
        except Exception as error:
            raise ModelError(
                f"learning.schedule {self.name} fails in round {round}, step {step} "
                f"({describe_error(error, module='')}); fix it"
            ) from error
        if not 0 <= factor < math.inf:
            raise ModelError(
                f"learning.schedule {self.name} returns {factor} in round {round}, step {step}; return a factor of "
                "learning.rate that is finite and not negative"
            )
        return factor


def warm_up(settings: Mapping[str, object], *, time: int, steps: int) -> Mapping[str, object]:
    """Return settings with the rate in the first steps of a run, which rises by as much at each of them.

    Examples
    --------
    >>> [warm_up({"lr": 0.8}, time=time, steps=4)["lr"] for time in (0, 1, 3, 9)]
    [0.2, 0.4, 0.8, 0.8]
    """
    if time + 1 >= steps:
        return settings
    return {**settings, "lr": float(settings["lr"]) * (time + 1) / steps}  # type: ignore[arg-type]


ELEMENTWISE_OPTIMISERS = (
    *("SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "Adadelta", "Adamax", "NAdam", "RAdam", "Rprop", "ASGD"),
)
"""Classes of :mod:`torch.optim` that update each number by itself."""


def elementwise_optimisers() -> Mapping[str, type[torch.optim.Optimizer]]:
    """Return the elementwise optimisers of torch by their names in ``learning.optimizer``."""
    return {name.lower(): getattr(torch.optim, name) for name in ELEMENTWISE_OPTIMISERS}


def find_torch_key(optimizer: object, options: Collection[str], schedule: object) -> str | None:
    """Return the key of ``[learning]`` that needs torch; ``None`` for gradient descent, own schedules included.

    Examples
    --------
    >>> find_torch_key("sgd", {"weight_decay"}, None)
    >>> find_torch_key("adam", {}, None)
    'learning.optimizer = "adam"'
    """
    others = sorted({*options} - {"weight_decay"})
    if optimizer != "sgd":
        return f'learning.optimizer = "{optimizer}"'
    if others:
        return f"learning.options.{others[0]}"
    return f'learning.schedule = "{schedule}"' if isinstance(schedule, str) and ":" not in schedule else None


MAX_CHECKED_STEPS = 10_000
"""Most rounds or steps of a schedule that are checked before a run."""


@dataclass(frozen=True)
class Recipe:
    """Optimiser, learning rate and schedule, and the bound of gradients.

    Parameters
    ----------
    optimizer
        Name of an elementwise optimiser of :mod:`torch.optim`, in lower case, or its class.
    rate
        Learning rate of round 0.
    options
        Further arguments of the optimiser, such as ``momentum``.
    schedule
        Name of a class of :mod:`torch.optim.lr_scheduler`; or a function, or its ``package.module:function``, see
        :class:`p2pfl.learning.steps.optimisers.OwnSchedule`; or ``None``.
    schedule_options
        Arguments of the schedule.
    schedule_by
        What the schedule counts: it is stepped once a ``round``, or at each optimiser ``step``.
    warmup
        Optimiser steps of each peer in which the rate rises linearly to what it would be, over rounds too.
    max_norm
        Largest L2 norm of the gradient of a batch, see :func:`p2pfl.learning.steps.training.clip`; ``None`` for no
        bound.

    Raises
    ------
    ModelError
        The optimiser is not elementwise, or it or the schedule does not accept its arguments.

    Examples
    --------
    >>> recipe = Recipe("sgd", rate=1.0, schedule="StepLR", schedule_options={"step_size": 2, "gamma": 0.5})
    >>> [recipe.settings(round)["lr"] for round in range(5)]
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    optimizer: str | type[torch.optim.Optimizer] = "sgd"
    rate: float = 0.1
    options: Mapping[str, object] = field(default_factory=dict)
    schedule: str | Factor | None = None
    schedule_options: Mapping[str, object] = field(default_factory=dict)
    schedule_by: Literal["round", "step"] = "round"
    warmup: int = 0
    max_norm: float | None = None

    def __post_init__(self) -> None:
        key = find_torch_key(self.optimizer, self.options, self.schedule)
        if not TORCH_INSTALLED and key is not None:
            raise needs_torch(key)
        numbers: dict[str, object] = {"rate": self.rate}
        numbers |= {f"options.{key}": value for key, value in self.options.items()}
        numbers |= {f"schedule.options.{key}": value for key, value in self.schedule_options.items()}
        for key, value in numbers.items():
            if isinstance(value, float) and not math.isfinite(value):
                raise ModelError(f"learning.{key} is {value}, not a finite number; change it")
        if self.max_norm is not None and not self.max_norm > 0:
            raise ModelError(f"learning.max_norm is {self.max_norm}; set it to a number above 0, or leave it out")
        if self.schedule_by not in ("round", "step"):
            raise ModelError(f'learning.schedule.by is {self.schedule_by!r}; set it to "round" or "step"')
        if isinstance(self.warmup, bool) or not isinstance(self.warmup, Integral) or self.warmup < 0:
            raise ModelError(
                f"learning.schedule.warmup is {self.warmup!r}; set it to a whole number of steps from 0 on"
            )
        self.settings(0)

    def check(self, rounds: int, *, steps: int = 1) -> None:
        """Check the schedule up to the last of ``rounds`` rounds.

        Parameters
        ----------
        rounds
            Number of rounds.
        steps
            Most steps of a peer in a round. Of a schedule by step, the first :data:`MAX_CHECKED_STEPS` are checked.

        Raises
        ------
        ModelError
            The schedule ends before, or gives a rate that is negative or not finite.
        """
        if self.schedule is None:
            return
        clock = StepClock(max(1, steps))
        if self._own is not None:
            for round in range(min(rounds, MAX_CHECKED_STEPS)):
                self.at(round, 0, clock)
            self.at(rounds - 1, clock.steps - 1, clock)
        elif self.schedule_by == "round":
            self.settings(rounds - 1)
        else:
            last = min(rounds * clock.steps, MAX_CHECKED_STEPS) - 1
            self.at(last // clock.steps, last % clock.steps, clock)

    @property
    def paced(self) -> bool:
        """True if the rate changes within a round."""
        return self.warmup > 0 or (self.schedule is not None and self.schedule_by == "step")

    def at(self, round: int, step: int, clock: StepClock) -> Mapping[str, object]:
        """Return the arguments of the optimiser at a step of a round.

        Parameters
        ----------
        round, step
            Round, and optimiser step in it, from 0.
        clock
            Steps that the peer takes in a round.
        """
        time = clock.time(round, step)
        if self._own is not None:
            factor = self._own.factor(round, step if self.schedule_by == "step" else 0, clock.steps)
            settings: Mapping[str, object] = {**self._constant, "lr": self.rate * factor}
        else:
            settings = self._table.at(time if self.schedule_by == "step" else round)
        return warm_up(settings, time=time, steps=self.warmup)

    @cached_property
    def kind(self) -> Callable[..., torch.optim.Optimizer]:
        """Class of the optimiser."""
        if not isinstance(self.optimizer, str | type):
            type_name = type(self.optimizer).__name__
            raise ModelError(
                f"learning.optimizer is an object of {type_name}; give the class, or its name, {type_name.lower()!r}"
            )
        name = self.optimizer if isinstance(self.optimizer, str) else self.optimizer.__name__
        kind = elementwise_optimisers().get(name.lower())
        if kind is None or self.optimizer not in (name, kind):
            raise ModelError(
                f"learning.optimizer {name!r} does not update every parameter independently; choose one of "
                f"{', '.join(elementwise_optimisers())}"
            )
        return kind

    def settings(self, round: int) -> Mapping[str, object]:
        """Return the arguments of the optimiser at the beginning of a round, before warm-up."""
        if self._own is not None:
            return {**self._constant, "lr": self.rate * self._own.factor(round, 0, 1)}
        return self._constant if self.schedule is None else self._table.at(round if self.schedule_by == "round" else 0)

    @cached_property
    def _own(self) -> OwnSchedule | None:
        """Schedule of the user's own."""
        if self.schedule is None or (isinstance(self.schedule, str) and ":" not in self.schedule):
            return None
        return OwnSchedule.of(self.schedule, options=self.schedule_options, by=self.schedule_by)

    @cached_property
    def _table(self) -> SettingsTable:
        """Arguments of the optimiser under a schedule of torch, by the number of times that it was stepped."""
        if self.schedule is None:
            return SettingsTable([self._constant])
        return SettingsTable(self._step_schedule())

    def _step_schedule(self) -> Iterator[Mapping[str, object]]:
        """Yield the arguments of the optimiser while the schedule is stepped."""
        name, optimiser = str(self.schedule), self._make_optimiser()
        kind: Any = getattr(torch.optim.lr_scheduler, name, None)
        is_scheduler = isinstance(kind, type) and issubclass(kind, torch.optim.lr_scheduler.LRScheduler)
        if not is_scheduler or kind in (
            torch.optim.lr_scheduler.LRScheduler,
            torch.optim.lr_scheduler.ReduceLROnPlateau,
        ):
            raise ModelError(
                f"learning.schedule {name!r} is not a class of torch.optim.lr_scheduler that depends on the "
                f"{self.schedule_by} alone; use one such as 'CosineAnnealingLR', or name \"package.module:function\""
            )
        schedule: Any = None
        for number in count():
            try:
                if schedule is None:
                    schedule = kind(optimiser, **self.schedule_options)
                else:
                    optimiser.step()  # no parameter has a gradient; the schedule only requires this call first
                    schedule.step()
            except Exception as error:
                raise ModelError(
                    f"learning.schedule {name} fails in {self.schedule_by} {number + 1} "
                    f"({describe_error(error, module='')}); fix learning.schedule.options"
                ) from error
            settings = self._read(optimiser)
            if not 0 <= float(settings["lr"]) < math.inf:  # type: ignore[arg-type]
                raise ModelError(
                    f"learning.schedule {name} sets the rate to {settings['lr']} in {self.schedule_by} {number + 1}, "
                    "which is negative or not finite; fix learning.schedule.options"
                )
            yield settings

    def _make_optimiser(self) -> torch.optim.Optimizer:
        """Return the optimiser on one number, to validate its arguments."""
        kind = self.kind
        try:
            return kind([torch.zeros(1, requires_grad=True)], lr=self.rate, **self.options)
        except Exception as error:
            raise self._refusal(error) from error

    def attempt(self, dtype: torch.dtype) -> None:
        """Take a step on one number, as some arguments are validated no earlier."""
        if self._plain:
            return
        number = torch.zeros(1, dtype=dtype)
        number.grad = torch.ones_like(number)
        try:
            self.kind([number], **self.settings(0)).step()
        except Exception as error:
            raise self._refusal(error) from error

    def _refusal(self, error: Exception) -> ModelError:
        return ModelError(
            f"learning.optimizer {self.optimizer!r} does not accept its arguments "
            f"({describe_error(error, module='')}); fix learning.rate or learning.options"
        )

    def _read(self, optimiser: torch.optim.Optimizer) -> Mapping[str, object]:
        taken = inspect.signature(self.kind).parameters
        return {name: value for name, value in optimiser.param_groups[0].items() if name in taken and name != "params"}

    @cached_property
    def _constant(self) -> Mapping[str, object]:
        if not TORCH_INSTALLED:
            return {"lr": self.rate, "momentum": 0, "maximize": False, "weight_decay": 0, **self.options}
        if not self._plain:
            return self._read(self._make_optimiser())
        taken = inspect.signature(self.kind).parameters.values()
        return {each.name: each.default for each in taken if each.name != "params"} | {"lr": self.rate}

    @cached_property
    def _plain(self) -> bool:
        """True if there is nothing to try; the first optimiser makes torch import its compiler, which takes long."""
        if not TORCH_INSTALLED:
            return True
        usual = 0 <= self.rate < 1e4  # no type of numbers overflows
        return usual and self.kind is torch.optim.SGD and not self.options and self.schedule is None

    @cached_property
    def stateless(self) -> bool:
        """True for plain gradient descent, which keeps no state between steps."""
        settings = self.settings(0)
        if not TORCH_INSTALLED:
            return True
        return self.kind is torch.optim.SGD and not settings["momentum"] and not settings["maximize"]

    @property
    def states(self) -> int:
        """Numbers for each parameter that the optimiser keeps: none for plain descent, two for Adam."""
        if self.stateless:
            return 0
        number = torch.zeros(2)
        number.grad = torch.ones_like(number)
        optimiser = self.kind([number], **self.settings(0))
        optimiser.step()
        return sum(torch.is_tensor(value) and value.dim() > 0 for value in optimiser.state[number].values())

    def groups(self, memory: Memory, size: int) -> np.ndarray:
        """Return labels ``[R]``: rows with equal labels have equal counts and may be updated together."""
        scalars = [value.numpy() for _, value in sorted(memory.items()) if value.dim() == 1]
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
        self.rates: torch.Tensor | None = None  # [K], where rows have different ones

    def pace(self, settings: Sequence[Mapping[str, object]]) -> None:
        """Take the settings of each row at the next step."""
        rates = [float(each["lr"]) for each in settings]  # type: ignore[arg-type]
        self.rate = rates[0]
        self.rates = torch.tensor(rates, dtype=torch.float64) if min(rates) < max(rates) else None  # [K]

    def narrow(self, active: int) -> None:
        """Do nothing, as plain descent keeps no state."""

    def step(self, parts: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Move ``parts`` in place."""
        for part, gradient in zip(parts, gradients, strict=True):
            slope = gradient.add(part, alpha=self.decay) if self.decay else gradient
            if self.rates is None:
                part.add_(slope, alpha=-self.rate)
            else:
                part.sub_(slope * to_device(self.rates, part.device).to(part.dtype).view(-1, *[1] * (part.dim() - 1)))

    def memory(self) -> dict[str, torch.Tensor]:
        """Return no state."""
        return {}


class StackedUpdate:
    """Torch optimiser on the K rows of a block, a group of equal counts at a time.

    Parameters
    ----------
    kind, settings
        Optimiser class and its arguments in this round.
    parts
        Trained tensors, each ``[K, *shape]``, changed in place.
    layout
        Places of these tensors in a row.
    memory
        State of these K rows; empty for a fresh start.
    labels
        ``[K]``: adjacent rows with equal labels form a group.
    """

    def __init__(
        self,
        kind: Callable[..., torch.optim.Optimizer],
        settings: Mapping[str, object],
        *,
        parts: Sequence[torch.Tensor],
        layout: Layout,
        memory: Memory,
        labels: np.ndarray,
    ) -> None:
        self.kind, self.settings, self.layout = kind, settings, layout
        self.reads = kind is torch.optim.ASGD  # its numbers in every step
        if self.reads and settings.get("foreach") is None:
            self.settings = {**settings, "foreach": False}  # so that they may be on another device than the rows
        self.parts = list(parts)
        self.counts = kind is not torch.optim.SGD  # all other optimisers count their steps themselves
        size = len(labels)
        self.kept: dict[str, torch.Tensor] = {name: value.clone() for name, value in memory.items()}  # [K, P] or [K]
        self.kept.setdefault("step", torch.zeros(size, dtype=torch.float64))  # [K]
        cuts = [0, *(np.flatnonzero(np.diff(labels)) + 1).tolist(), size]
        self.bounds = [(low, high) for low, high in pairwise(cuts) if low < high]
        self.optimisers = [self._open(low, high) for low, high in self.bounds]

    def _open(self, low: int, high: int) -> torch.optim.Optimizer:
        """Return an optimiser on the rows ``low`` to ``high`` with their kept state."""
        params = [part[low:high] for part in self.parts]
        optimiser = self.kind(params, **self.settings)
        if self.kept["step"][low] == 0:
            for param in params if self.reads else ():
                optimiser.state[param].update(_averaging_state(param, self.settings))
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

    def _keep(self, optimiser: torch.optim.Optimizer, low: int, high: int) -> None:
        """Save the state of the rows ``low`` to ``high``."""
        states = [optimiser.state[param] for param in optimiser.param_groups[0]["params"]]
        for name, value in states[0].items():
            if not torch.is_tensor(value):
                continue  # SGD stores None where it has no momentum
            if value.dim() == 0:
                self.kept.setdefault(name, torch.zeros_like(self.kept["step"]))[low:high] = value.double()
                continue
            stack = dict(zip(self.layout.names, (state[name] for state in states), strict=True))
            joined = self.layout.join(stack)  # [high - low, P]
            if name not in self.kept:
                self.kept[name] = joined.new_zeros(len(self.kept["step"]), joined.shape[1])  # [K, P]
            self.kept[name][low:high] = joined

    def pace(self, settings: Sequence[Mapping[str, object]]) -> None:
        """Take the settings of each row at the next step, which are the same within a group."""
        for optimiser, (low, high) in zip(self.optimisers, self.bounds, strict=True):
            if low < high:
                optimiser.param_groups[0].update(settings[low])

    def narrow(self, active: int) -> None:
        """Move only the first ``active`` rows from here on."""
        for i, (low, high) in enumerate(self.bounds):
            if high > active and low < high:
                self._keep(self.optimisers[i], low, high)
                self.bounds[i] = (low, max(low, active))
                if low < active:
                    self.optimisers[i] = self._open(low, active)

    def step(self, parts: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Move the active rows in place by their ``gradients``, ``[active, *shape]``."""
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
        """Return the state of all K rows."""
        self.narrow(0)
        return self.kept


def _averaging_state(param: torch.Tensor, settings: Mapping[str, object]) -> dict[str, torch.Tensor]:
    """Return the first state of :class:`torch.optim.ASGD` with its numbers on the CPU, which would wait for others."""
    kind = torch.get_default_dtype()
    numbers = {"step": 0.0, "eta": float(settings["lr"]), "mu": 1.0}  # type: ignore[arg-type]
    return {"ax": torch.zeros_like(param)} | {name: torch.tensor(each, dtype=kind) for name, each in numbers.items()}
