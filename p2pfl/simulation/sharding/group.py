"""Workers that simulate together, over ``torch.distributed``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Protocol

import msgspec
import torch
from torch.distributed import Store  # type: ignore[attr-defined] # exported without `__all__`

from p2pfl.core import errors
from p2pfl.core.errors import P2PFLError, RunError

MAX_WAIT = timedelta(hours=1)
"""Longest time for which one worker waits for another."""

SHORTEST_PAUSE, LONGEST_PAUSE = 2e-5, 1e-3
"""Seconds from one look at whether the others have answered to the next; a signal is handled in between."""

FAILED = "failed"
"""Key of the first failure in the store."""


class Failure(msgspec.Struct, frozen=True):
    """Failure of a worker, as the others receive it."""

    worker: int
    kind: str
    message: str

    @classmethod
    def of(cls, error: BaseException, *, worker: int) -> Failure:
        """Return the failure that describes an error."""
        return cls(worker, type(error).__name__, str(error))

    @property
    def error(self) -> P2PFLError:
        """The error to raise in another worker: of the same kind, if it is one of p2pfl."""
        kind = getattr(errors, self.kind, None)
        if isinstance(kind, type) and issubclass(kind, P2PFLError):
            try:
                return kind(self.message)
            except TypeError:  # it takes more than a message
                return RunError(self.message)
        return RunError(
            f"worker {self.worker} failed with {self.kind} ({self.message}); its traceback is in its output"
        )


class Backend(Protocol):
    """Interface of the process groups of ``torch.distributed`` that is used here."""

    def allreduce(self, tensors: list[torch.Tensor]) -> Any:
        """Begin to add up tensors."""

    def alltoall_base(self, output: torch.Tensor, source: torch.Tensor, taken: list[int], parts: list[int], /) -> Any:
        """Begin to send the parts of a tensor to the workers."""


class WorkerGroup:
    """Workers of a simulation.

    Every method must be called by all workers in the same order.

    Parameters
    ----------
    store
        Store that all workers reach.
    rank, size
        Number of this worker and number of all.
    host
        Process group for tensors on the CPU.
    device
        Process group for tensors on an accelerator; without one they travel by way of the CPU.
    missing
        Function that returns what became of a worker that stopped answering; empty if it is not known.

    Attributes
    ----------
    bytes_out
        Bytes that this worker has sent to others.
    """

    def __init__(
        self,
        store: Store,
        *,
        rank: int,
        size: int,
        host: Backend,
        device: Backend | None = None,
        missing: Callable[[], str] = str,
    ) -> None:
        self.store, self.rank, self.size = store, rank, size
        self._backends = {"host": host} | ({} if device is None else {"device": device})
        self._missing = missing
        self.bytes_out = 0

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Return the sum of the values of all workers, the same in each to the last bit; int64 wraps around."""
        moved = values.clone() if self._travels(values) else values.cpu()
        self._carry_out(lambda backend: backend.allreduce([moved]), moved)
        self.bytes_out += 2 * moved.nbytes * (self.size - 1) // self.size
        return moved.to(values.device)

    def swap(
        self, values: torch.Tensor, *, gives: Sequence[int], takes: Sequence[int], into: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Send successive slices of ``[S, ...]`` to the workers, and return theirs, one after the other.

        Parameters
        ----------
        values
            What is sent, in the order of the workers.
        gives, takes
            Length of what each worker is sent, and of what it sends.
        into
            Contiguous tensor that receives theirs, of the same type and device; a new one by default.
        """
        shape = values.shape[1:]
        flat = values.reshape(len(values), math.prod(shape)).contiguous()
        moved = (flat if self._travels(flat) else flat.cpu()).view(torch.uint8)  # of any number type
        if into is not None and into.device == moved.device:
            incoming = into.view(len(into), flat.shape[1]).view(torch.uint8)
        else:
            incoming = torch.empty(sum(takes), moved.shape[1], dtype=torch.uint8, device=moved.device)
        self._carry_out(lambda backend: backend.alltoall_base(incoming, moved, list(takes), list(gives)), moved)
        self.bytes_out += (len(moved) - gives[self.rank]) * moved.shape[1]
        taken = incoming.view(values.dtype).reshape(len(incoming), *shape).to(values.device)
        return taken if into is None or taken.data_ptr() == into.data_ptr() else into.copy_(taken)

    def gather(self, data: bytes) -> list[bytes]:
        """Return the bytes of all workers at the first one, and nothing at others."""
        lengths = self.swap(torch.full((self.size, 1), len(data)), gives=[1] * self.size, takes=[1] * self.size)
        counts = lengths.flatten().tolist()
        first = self.rank == 0
        gives = [len(data)] + [0] * (self.size - 1)
        gathered = self.swap(_tensor(data), gives=gives, takes=counts if first else [0] * self.size)
        return [part.numpy().tobytes() for part in torch.split(gathered.flatten(), counts)] if first else []

    def share(self, data: bytes) -> bytes:
        """Return the bytes of the first worker at all of them."""
        first = self.rank == 0
        length = torch.full((self.size if first else 0, 1), len(data))
        gives, takes = [int(first)] * self.size, [1] + [0] * (self.size - 1)
        count = int(self.swap(length, gives=gives, takes=takes))
        sent = _tensor(data).repeat(self.size, 1) if first else _tensor(b"")
        return (
            self.swap(sent, gives=[count * first] * self.size, takes=[count] + [0] * (self.size - 1)).numpy().tobytes()
        )

    def agree(self, error: P2PFLError | None) -> None:
        """Raise the error of any worker in all of them."""
        report = b"" if error is None else msgspec.msgpack.encode(Failure.of(error, worker=self.rank))
        if not int(self.total(torch.tensor([len(report)]))):
            return
        failures = [each for each in self.gather(report) if each]
        first = self.share(failures[0] if failures else b"")
        raise error or msgspec.msgpack.decode(first, type=Failure).error

    def fail(self, error: BaseException) -> None:
        """Tell the other workers why this one ends."""
        self.store.compare_set(FAILED, "", msgspec.json.encode(Failure.of(error, worker=self.rank)).decode())

    def close(self) -> None:
        """Close the connections to the other workers, which whoever waits for this one notices."""
        self._backends.clear()  # gloo closes them when nothing refers to the process group

    def _travels(self, values: torch.Tensor) -> bool:
        """Return whether a tensor is where a process group takes it."""
        return values.device.type == "cpu" or "device" in self._backends

    def _carry_out(self, begin: Callable[[Backend], Any], values: torch.Tensor) -> None:
        """Carry out one operation; between looks at it this thread handles signals."""
        try:
            work = begin(self._backends["host" if values.device.type == "cpu" else "device"])
            pause = SHORTEST_PAUSE
            while not work.is_completed():
                time.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            work.wait()
        except RuntimeError as error:
            raise self._lost() from error

    def _lost(self) -> P2PFLError:
        """Return why another worker does not answer: its own error, or that it is gone."""
        try:
            failure = self.store.get(FAILED) if self.store.check([FAILED]) else b""
        except RuntimeError:  # the store ended with the first worker
            failure = b""
        if failure:
            return msgspec.json.decode(failure, type=Failure).error
        reason = self._missing() or "another worker has ended"
        return RunError(
            f"{reason}; what was recorded so far can be read, and --resume goes on from the last checkpoint"
        )


def _tensor(data: bytes) -> torch.Tensor:
    """Return bytes as a tensor ``[S, 1]``."""
    if not data:
        return torch.zeros(0, 1, dtype=torch.uint8)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, 1)
