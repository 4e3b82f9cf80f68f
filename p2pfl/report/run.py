"""The run directory: ``runs/<name>-<time>/``.

experiment.toml            as resolved
metrics.jsonl              one record per peer and round
peers/<name>.safetensors   the model under its own names
peers/<name>.state         what else a peer needs to go on, safetensors too
summary.json               alone, together, pooled; the same keys for run and simulate
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from p2pfl.errors import InputError, StorageError
from p2pfl.experiment import Experiment, read, write


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One peer's round.

    Attributes
    ----------
    scores
        On the test part: the score named in ``summary.json`` and ``loss``.
    training_loss
        Mean loss of the last local epoch; ``None`` where the peer sat out.
    distance
        How far the last exchange moved the row (L2): zero at consensus.
    bytes_out, bytes_in
        Since the start of the run.
    seconds_training, seconds_waiting
        In this round.
    heard, missed
        Rows used in this round; neighbours whose row did not come in time.
    privacy_spent
        ``None``: no accountant watches yet.
    """

    peer: str
    round: int
    scores: dict[str, float]
    training_loss: float | None
    distance: float
    bytes_out: int
    bytes_in: int
    seconds_training: float
    seconds_waiting: float
    heard: int
    missed: list[str] = []
    privacy_spent: float | None = None


class Run:
    """A run and its directory.

    Parameters
    ----------
    folder
        Where it lies; ``None`` keeps everything in memory.
    experiment
        As resolved.

    Attributes
    ----------
    metrics
        All records, in the order in which rounds ended.
    models
        ``{peer: state dict}`` under the model's own names.
    summary
        See ``summary.json`` in the design.
    """

    def __init__(self, experiment: Experiment, *, folder: Path | None = None) -> None:
        self.experiment = experiment
        self.folder = folder
        self.metrics: list[Record] = []
        self.models: dict[str, Mapping[str, Any]] = {}
        self.summary: dict[str, Any] = {}
        if folder is not None:
            self._create(folder)

    def _create(self, folder: Path) -> None:
        try:
            (folder / "peers").mkdir(parents=True)
            (folder / "experiment.toml").write_text(write(self.experiment), "utf-8")
            (folder / "metrics.jsonl").touch()
        except OSError as error:
            raise InputError(f"expected to write a run directory at {folder}, got: {error.strerror}") from None

    def record(self, records: Sequence[Record]) -> None:
        """Add the records of a round; they are on disk when this returns."""
        self.metrics.extend(records)
        if self.folder is None:
            return
        lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
        try:
            with (self.folder / "metrics.jsonl").open("ab") as file:
                file.write(lines)
        except OSError as error:
            raise StorageError(f"expected to write to {self.folder}, got: {error.strerror}; free some space") from None

    def checkpoint(self, peer: str, model: Mapping[str, Any], state: Mapping[str, Any], *, round: int) -> None:
        """Keep a peer's model and state after ``round``; what was there is replaced as a whole or not at all."""
        self.models[peer] = model
        if self.folder is not None:
            save(self.folder / "peers", peer, model, state, round=round)

    def finish(self, summary: Mapping[str, Any]) -> None:
        """Write the summary."""
        self.summary = dict(summary)
        if self.folder is not None:
            text = json.dumps(self.summary, indent=2, allow_nan=False) + "\n"
            replace(self.folder / "summary.json", text.encode())

    def plot(self, path: str | Path | None = None) -> Any:
        """Draw score and distance over rounds; to ``path``, or return the matplotlib figure."""
        from p2pfl.report.plots import figure  # noqa: PLC0415 (matplotlib is an extra)

        return figure(self.metrics, self.summary, path=path)

    @staticmethod
    def load(folder: str | Path) -> Run:
        """Read a run directory."""
        folder = Path(folder)
        if not (folder / "experiment.toml").is_file():
            raise InputError(f"expected a run directory with experiment.toml, got {folder}")
        run = Run(read(folder / "experiment.toml"))
        run.folder = folder
        lines = (folder / "metrics.jsonl").read_bytes().splitlines()
        try:
            run.metrics = [msgspec.json.decode(line, type=Record) for line in lines]
        except msgspec.MsgspecError as error:
            raise StorageError(f"{folder / 'metrics.jsonl'}: expected one record a line, got: {error}") from None
        summary = folder / "summary.json"
        run.summary = json.loads(summary.read_text("utf-8")) if summary.is_file() else {}
        return run


def save(folder: Path, peer: str, model: Mapping[str, Any], state: Mapping[str, Any], *, round: int) -> None:
    """Write a checkpoint.

    Raises
    ------
    StorageError
        If the disk is full or not writable; an older checkpoint stays as it was.
    """
    from safetensors.torch import save as to_bytes  # noqa: PLC0415 (imports torch)

    note = {"peer": peer, "round": str(round)}
    replace(folder / f"{peer}.safetensors", to_bytes({name: _plain(value) for name, value in model.items()}, note))
    replace(folder / f"{peer}.state", to_bytes({name: _plain(value) for name, value in state.items()}, note))


def replace(path: Path, data: bytes) -> None:
    """Write a file as a whole or not at all."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise StorageError(f"expected to write {path}, got: {error.strerror}; what was there is untouched") from None


def _plain(tensor: Any) -> Any:
    return tensor.detach().cpu().contiguous().clone()
