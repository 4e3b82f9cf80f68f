"""Comparison of a run with its repetition, to the bit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from p2pfl.results.run import Run
from p2pfl.results.run_files import table_of

VARYING_FIELDS = frozenset({"time", "seconds_training", "seconds_waiting", "awaited"})
"""Fields of records that differ between two runs of one experiment, as clocks do."""

RESULT_FIELDS = ("metric", "rounds", "alone", "together", "pooled", "common", "bytes_sent", "gradients")
"""Fields of a summary that are compared, besides the scores of each peer."""

SCORE_FIELDS = ("alone", "together")
"""Fields of a peer in a summary that are compared."""


class RunDifference(msgspec.Struct, frozen=True):
    """Difference of a run and its repetition.

    Attributes
    ----------
    what
        What differs: a file of a model, a field of the records, or a key of the summary.
    largest
        Largest difference of two numbers; null where one has none or they are no numbers.
    count
        Number of values that differ.
    """

    what: str
    largest: float | None
    count: int


class Repetition(msgspec.Struct, frozen=True, kw_only=True):
    """Comparison of a run with its repetition.

    Attributes
    ----------
    run, repeated
        Directories of the two.
    models
        Models that differ. Two models are equal if their tensors agree in every bit.
    files
        Number of models that were compared.
    records
        Fields of ``metrics.jsonl`` that differ, without durations.
    compared
        Number of records that were compared.
    results
        Keys of ``summary.json`` that differ, of scores and costs.
    versions
        Software and machine that differ: the old value and the new one, by name.
    data
        True if the digests of the data are equal; null where the run recorded none.
    code
        True if the own modules are equal; null where the experiment names none.
    """

    run: str
    repeated: str
    models: tuple[RunDifference, ...]
    files: int
    records: tuple[RunDifference, ...]
    compared: int
    results: tuple[RunDifference, ...]
    versions: dict[str, tuple[Any, Any]]
    data: bool | None
    code: bool | None

    @property
    def same(self) -> bool:
        """True if models, records and results agree in every bit."""
        return not (self.models or self.records or self.results)

    @property
    def table(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        return dict(msgspec.to_builtins(self)) | {"same": self.same}


def repetition(run: Run, repeated: Run) -> Repetition:
    """Compare a run with its repetition.

    Parameters
    ----------
    run, repeated
        Runs with a directory each.
    """
    before, after = run.folder or Path(), repeated.folder or Path()
    names = sorted(path.name for path in {*before.glob("peers/*.safetensors")})
    models = [model for name in names if (model := _model(before / "peers" / name, after / "peers" / name)) is not None]
    old, new = (one.provenance.get("versions") or {} for one in (run, repeated))
    kept, made = (table_of(folder / "data.json", what="digests of data") for folder in (before, after))
    codes = [(one.provenance.get("code") or {}).get("digest") for one in (run, repeated)]
    return Repetition(
        run=str(before),
        repeated=str(after),
        models=tuple(models),
        files=len(names),
        records=tuple(_differences(_records(run), _records(repeated))),
        compared=len(run.metrics),
        results=tuple(_differences(_results(run), _results(repeated))),
        versions={key: (old.get(key), new.get(key)) for key in {**old, **new} if old.get(key) != new.get(key)},
        data=kept == made if kept else None,
        code=codes[0] == codes[1] if codes[0] is not None else None,
    )


def _model(before: Path, after: Path) -> RunDifference | None:
    """Return the difference of two files of models; ``None`` if all tensors agree in every bit."""
    from p2pfl.core.tensors import load_file, torch  # noqa: PLC0415 (imports torch)

    if not after.is_file():
        return RunDifference(before.name, None, 1)
    if before.read_bytes() == after.read_bytes():
        return None
    mine, theirs = load_file(before), load_file(after)
    largest, count = 0.0, 0
    for name in {**mine, **theirs}:
        if name not in mine or name not in theirs or mine[name].shape != theirs[name].shape:
            return RunDifference(before.name, None, 1)
        if mine[name].dtype == theirs[name].dtype and _bits(mine[name]) == _bits(theirs[name]):
            continue
        distance = (mine[name].double() - theirs[name].double()).abs()
        distance = torch.where(mine[name].isnan() & theirs[name].isnan(), torch.zeros_like(distance), distance)
        largest, count = max(largest, float(distance.max())), count + int((distance != 0).sum()) or 1
    return RunDifference(before.name, largest, count) if count else None


def _bits(tensor: Any) -> bytes:
    from p2pfl.core.tensors import torch  # noqa: PLC0415

    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def _records(run: Run) -> dict[tuple[str, Any], Any]:
    """Return the compared values of the records of a run, by field or score, peer and round."""
    values: dict[tuple[str, Any], Any] = {}
    for record in run.metrics:
        fields = msgspec.structs.asdict(record)
        fields |= fields.pop("scores")
        values |= {
            (name, (record.peer, record.round)): each for name, each in fields.items() if name not in VARYING_FIELDS
        }
    return values


def _results(run: Run) -> dict[tuple[str, Any], Any]:
    """Return the scores and costs of a run that are compared, by name."""
    peers = run.summary.get("per_peer", {}).items()
    values = {name: run.summary.get(name) for name in RESULT_FIELDS}
    values |= {f"{peer} {name}": each.get(name) for peer, each in peers for name in SCORE_FIELDS}
    return {(name, None): value for name, value in values.items()}


def _differences(mine: Mapping[tuple[str, Any], Any], theirs: Mapping[tuple[str, Any], Any]) -> Iterator[RunDifference]:
    """Yield the names whose values differ, or that only one of the two has somewhere."""
    distances_by_name: dict[str, list[float | None]] = {}
    for key in {**mine, **theirs}:
        one, other = mine.get(key), theirs.get(key)
        if not _equal(one, other):
            distances_by_name.setdefault(key[0], []).append(_distance(one, other))
    for name, distances in sorted(distances_by_name.items()):
        finite = [distance for distance in distances if distance is not None]
        yield RunDifference(name, max(finite) if len(finite) == len(distances) else None, len(distances))


def _equal(one: Any, other: Any) -> bool:
    return one == other or (
        isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other)
    )


def _distance(one: Any, other: Any) -> float | None:
    numbers = isinstance(one, int | float) and isinstance(other, int | float)
    return abs(float(one) - float(other)) if numbers else None
