"""Checkpoint of a simulation: the state of all peers after a round, in one file, from which the run can go on."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import torch

from p2pfl.algorithms import Averaging, State
from p2pfl.core.errors import InputError, StorageError
from p2pfl.core.files import DRIVE, OWNER_ONLY
from p2pfl.core.rows import repeated
from p2pfl.privacy.accounting.examples import SampledSteps
from p2pfl.privacy.accounting.spending import Cost
from p2pfl.results.spending.meter import Meter
from p2pfl.simulation.best_models import BestModels
from p2pfl.simulation.own_state import apart_of

FILE = "simulation.state"
"""Name of the checkpoint in the run directory; it is removed at the end of the run."""

PART = 20
"""A checkpoint is written when this multiple of the time that the last one took has passed."""

SOONEST = 10.0
"""Seconds from one checkpoint to the next, at least."""

SPEED = 2e8
"""Bytes of a checkpoint that are assumed to be written in a second, until one has been written."""

LATEST = 60.0
"""Longest wait in seconds for the first checkpoint, as disks may be faster."""

HELD = 2**26
"""Largest state in bytes that is held until an interruption writes it."""


@dataclass(frozen=True)
class Facts:
    """Numbers of a checkpoint beside its tensors.

    Attributes
    ----------
    round
        Last round that the state includes.
    ended
        Whether it was the last round of the run.
    stop
        Round after the last one that the budget permitted when the run began.
    steps, seconds
        Gradients and seconds of training so far.
    costs
        Charged costs of releases: mu, probability and number.
    sampled
        Rounds of DP-SGD: peer, noise, rate, steps and number.
    same
        Names of tensors that are the same as another one, by its name.
    peers
        Number of peers whose rows are equal, by the names of tensors of which one row is written.
    secret
        Whether nobody can compute the private noise of these rounds again. A checkpoint holds no key of it: a run that
        goes on draws anew.
    trace
        Digest of the trace of devices; empty without one.
    """

    round: int
    ended: bool
    stop: int
    steps: int
    seconds: float
    costs: tuple[tuple[float, float, int], ...] = ()
    sampled: tuple[tuple[str, float, float, int, int], ...] = ()
    same: Mapping[str, str] = field(default_factory=dict)
    peers: Mapping[str, int] = field(default_factory=dict)
    secret: bool = False
    trace: str = ""


@dataclass(frozen=True)
class SimulationCheckpoint:
    """State of a simulation after a round.

    Attributes
    ----------
    facts
        Numbers.
    state
        State of all peers.
    sent
        Bytes that each peer has sent, ``[N]`` int64.
    best
        Best models of all peers, where they judge them.
    """

    facts: Facts
    state: State
    sent: torch.Tensor
    best: BestModels | None = None

    @property
    def bytes(self) -> int:
        """Memory of all models and of the state, in which tensors and rows that are the same count once."""
        tensors = (self.state.rows, *self.state.tensors().values())
        own = sum({id(value): value[: 1 if repeated(value) else None].nbytes for value in tensors}.values())
        best = 0 if self.best is None else self.best.rows.nbytes
        return own + best

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the tensors that have a place for each peer, by their names in the file."""
        best = {} if self.best is None else self.best.tensors()
        return {"rows": self.state.rows, **self.state.tensors(), "sent": self.sent, **best}

    @classmethod
    def of(cls, facts: Facts, tensors: dict[str, torch.Tensor]) -> Self:
        """Return the checkpoint of the numbers and the :meth:`tensors` of one, which are taken from the dictionary."""
        rows, sent, best = tensors.pop("rows"), tensors.pop("sent"), BestModels.take(tensors)
        return cls(facts, State.restore(rows, tensors), sent, best)

    @property
    def costs(self) -> Counter[Cost]:
        """Charged costs."""
        return Counter({Cost(mu, probability): count for mu, probability, count in self.facts.costs})

    @property
    def sampled(self) -> dict[str, Counter[SampledSteps]]:
        """Rounds of DP-SGD for each kind of steps, by peer."""
        samples = defaultdict[str, Counter[SampledSteps]](Counter)
        for peer, noise, rate, steps, count in self.facts.sampled:
            samples[peer][SampledSteps(noise, rate, steps)] = count
        return dict(samples)

    def save(self, path: Path) -> None:
        """Write the checkpoint for its owner alone; an older one is replaced as a whole or not at all.

        Raises
        ------
        StorageError
            The disk is full or not writable.
        """
        from safetensors import SafetensorError  # noqa: PLC0415
        from safetensors.torch import save_file  # noqa: PLC0415 (only runs with a directory need it)

        kept: dict[str, torch.Tensor] = {}
        same: dict[str, str] = {}
        for name, value in self.tensors().items():
            twin = next((other for other, tensor in kept.items() if tensor is value), None)
            if twin is None:
                kept[name] = value
            else:
                same[name] = twin
        peers = {name: len(value) for name, value in kept.items() if repeated(value)}
        kept |= {name: kept[name][:1] for name in peers}
        about = {"facts": json.dumps(asdict(replace(self.facts, same=same, peers=peers)))}
        fresh = path.with_suffix(".new")
        try:
            fresh.touch(mode=OWNER_ONLY)  # models of peers before they are released
            save_file(_separate(kept), fresh, about)
            fresh.chmod(0o600)
            DRIVE.rename(fresh, path)
            DRIVE.sync(path.parent)
        except (OSError, SafetensorError) as error:
            fresh.unlink(missing_ok=True)
            raise StorageError(f"{path} cannot be written ({error}); free some space") from None

    @classmethod
    def load(cls, path: Path, *, peers: int, size: int) -> Self:
        """Read a checkpoint.

        Parameters
        ----------
        path
            Path of the file.
        peers, size
            Number of peers and of parameters of the experiment.

        Raises
        ------
        InputError
            There is none, it is damaged, or belongs to another experiment.
        """
        from safetensors import SafetensorError, safe_open  # noqa: PLC0415

        if not path.is_file():
            raise InputError(
                f"{path.parent} has no checkpoint of a simulation; start it again from its experiment.toml"
            )
        try:
            with safe_open(path, framework="pt") as file:
                facts = Facts(**json.loads(file.metadata()["facts"]))
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
            tensors |= {
                name: tensors[name].expand(count, *tensors[name].shape[1:]) for name, count in facts.peers.items()
            }
            tensors |= {name: tensors[twin] for name, twin in facts.same.items()}
            left = cls.of(facts, tensors)
        except (SafetensorError, OSError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise InputError(f"{path} is damaged ({error}); start the simulation again") from None
        shape, apart = tuple(left.state.rows.shape), apart_of(left.state)
        counts = {peers} if apart is None else {peers, len(apart) + 1}  # rows of the peers apart, and one other
        if len(left.sent) != peers or shape not in {(count, size) for count in counts}:
            raise InputError(
                f"{path} holds models of shape {shape}, not {(peers, size)}; resume the experiment that the run began "
                "with"
            )
        return left


def _separate(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return contiguous tensors of which no two share memory, as safetensors requires."""
    seen: set[int] = set()
    copies = {}
    for name, value in tensors.items():
        plain = value.detach().contiguous()
        address = plain.untyped_storage().data_ptr()
        copies[name] = plain.clone() if address in seen or plain.numel() != _memory_size(plain) else plain
        seen.add(address)
    return copies


def _memory_size(tensor: torch.Tensor) -> int:
    """Return how many numbers the memory of a tensor holds."""
    return tensor.untyped_storage().nbytes() // tensor.element_size()


def digest_trace(average: Averaging | None) -> str:
    """Return the digest of the trace of devices; empty without one."""
    devices = None if average is None else average.devices
    return "" if devices is None or devices.trace is None else devices.trace.digest


def remaining_rounds(meter: Meter, left: SimulationCheckpoint | None) -> range:
    """Return the rounds that are still to be played; slow peers may end theirs later."""
    return meter.rounds if left is None else range(left.facts.round + 1, left.facts.stop)


class Pause:
    """Pause between two checkpoints, so that writing them takes about a twentieth of the time of a run at most.

    Parameters
    ----------
    clock
        Clock of the durations.
    least
        Shortest pause in seconds.

    Examples
    --------
    A checkpoint of a gigabyte, which a disk writes in some seconds, is not written in the first minute of a run:

    >>> now = [0.0]
    >>> pause = Pause(lambda: now[0], least=10.0)
    >>> now[0] = 50.0
    >>> pause.over(10**6), pause.over(10**9)
    (True, False)
    """

    def __init__(self, clock: Callable[[], float], *, least: float) -> None:
        self._clock, self._least = clock, least
        self._last = clock()
        self._took: float | None = None

    def over(self, size: int) -> bool:
        """Return whether it is time to write a checkpoint of ``size`` bytes."""
        pause = min(LATEST, PART * size / SPEED) if self._took is None else PART * self._took
        return self._clock() >= self._last + max(self._least, pause)

    @contextmanager
    def time_writing(self) -> Iterator[None]:
        """Time the writing of a checkpoint, with which the next pause begins."""
        begun = self._clock()
        yield
        self._last = self._clock()
        self._took = self._last - begun


class CheckpointKeeper:
    """Keeper of the newest checkpoint of a run.

    It writes a checkpoint after each :class:`Pause`, and when it is told to: what is written never changes what the
    simulation computes. A state of more than :data:`HELD` bytes is not kept between two writes, because it would occupy
    as much memory as the models: a run that is interrupted then goes on from the last checkpoint that was written.

    Parameters
    ----------
    folder
        Run directory; ``None`` to write nothing.
    clock
        Clock of the durations.
    """

    def __init__(self, folder: Path | None, *, clock: Callable[[], float]) -> None:
        self.path = None if folder is None else folder / FILE
        self.pause = Pause(clock, least=SOONEST)
        self._newest: SimulationCheckpoint | None = None
        self._written = True

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Write the newest state of a run that is interrupted or fails; remove the checkpoint of one that has ended.

        Where the run failed because it could not write, there is no second attempt, which would hide the first error.
        """
        if kind is None:
            if self.path is not None:
                self.path.unlink(missing_ok=True)
        elif not issubclass(kind, StorageError):
            self.write()

    def keep(self, newest: SimulationCheckpoint) -> None:
        """Take the state after a round, and write it if it is time to."""
        if self.path is None:
            return
        self._newest, self._written = newest, False
        if self.pause.over(newest.bytes):
            self.write()
        if newest.bytes > HELD:
            self._newest = None

    def end(self) -> None:
        """Note that the last round has ended."""
        if self._newest is not None:
            facts = replace(self._newest.facts, ended=True)
            self._newest, self._written = replace(self._newest, facts=facts), False

    def write(self) -> None:
        """Write the newest state, unless it is on the disk already."""
        if self.path is None or self._newest is None or self._written:
            return
        with self.pause.time_writing():
            self._newest.save(self.path)
        self._written = True


def after(
    round: int,
    state: State,
    sent: torch.Tensor,
    *,
    stop: int,
    work: Any,
    costs: Mapping[Cost, int],
    sampled: Mapping[str, Mapping[SampledSteps, int]],
    secret: bool,
    trace: str,
    best: BestModels | None,
) -> SimulationCheckpoint:
    """Return the checkpoint after a round; ``work`` counts ``steps`` and ``seconds``."""
    listed = tuple((cost.mu, cost.probability, count) for cost, count in costs.items())
    trained = tuple(
        (peer, each.noise, each.rate, each.steps, count)
        for peer, rounds in sampled.items()
        for each, count in rounds.items()
    )
    counted: dict[str, Any] = {"steps": work.steps, "seconds": work.seconds, "costs": listed, "sampled": trained}
    facts = Facts(round, ended=False, stop=stop, secret=secret, trace=trace, **counted)
    if best is not None and best.rows.nbytes <= HELD:  # a larger one is written at once, or not held
        best = best.copy()
    return SimulationCheckpoint(facts, state, sent, best)
