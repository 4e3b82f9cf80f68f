"""Learning rates by round and by step: schedules of torch, of the user's own, and warm-up."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from p2pfl.core.errors import ModelError
from p2pfl.core.importing import describe_error, import_callable, kind_of
from p2pfl.core.process import one_at_a_time

Factor = Callable[..., float]
"""Function that returns a factor of the learning rate, see :class:`OwnSchedule`."""

COUNTS = ("round", "step", "steps")
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
        self._known: list[Mapping[str, object]] = []
        self._alone = one_at_a_time()  # several blocks of rows read it

    def at(self, number: int) -> Mapping[str, object]:
        """Return the settings of a number."""
        with self._alone:
            while len(self._known) <= number:
                following = next(self._rest, None)
                if following is None:
                    break
                self._known.append(following)
            return self._known[min(number, len(self._known) - 1)]


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
        Which of :data:`COUNTS` it receives.

    Examples
    --------
    >>> OwnSchedule.of(lambda round, step, steps: 1 / (1 + round + step / steps), options={}, by="step").factor(1, 2, 4)
    0.4
    """

    function: Factor
    name: str
    options: Mapping[str, object] = field(default_factory=dict)
    takes: tuple[str, ...] = COUNTS

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
        takes = tuple(count for count in COUNTS if count in parameters)
        try:
            inspect.signature(wanted).bind(**dict.fromkeys(takes, 0), **options)
        except TypeError as error:
            raise ModelError(
                f"learning.schedule {name} does not accept its arguments ({error}); give it parameters out of "
                f"{', '.join(COUNTS)}, and the others in learning.schedule.options"
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
        place = {"round": round, "step": step, "steps": steps}
        try:
            found = float(self.function(**{key: place[key] for key in self.takes}, **self.options))
        except Exception as error:
            raise ModelError(
                f"learning.schedule {self.name} fails in round {round}, step {step} "
                f"({describe_error(error, module='')}); fix it"
            ) from error
        if not 0 <= found < math.inf:
            raise ModelError(
                f"learning.schedule {self.name} returns {found} in round {round}, step {step}; return a factor of "
                "learning.rate that is finite and not negative"
            )
        return found


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
