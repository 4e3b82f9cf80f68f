""":class:`ServedModel`, a saved model that takes rows of JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec
import numpy as np
from msgspec import Meta

from p2pfl.core.errors import DataError, InputError, LearningError, P2PFLError
from p2pfl.core.tensors import torch
from p2pfl.data.tables.cells import TextCells, cell_text
from p2pfl.results.models.arrays import ArrayPredictor
from p2pfl.results.models.model_file import load_bytes
from p2pfl.results.models.predictor import Predictor

MAX_ROWS = 10_000
"""Largest number of rows of a request."""

ROUND = re.compile(r"[0-9]{1,9}")
"""Form of the number of a round."""

Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]

SOURCE = "the request"
"""Name of the rows in errors."""


class RequestError(P2PFLError):
    """A request that cannot be answered.

    Parameters
    ----------
    message
        One sentence.
    status
        Status of HTTP.
    """

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = status


@dataclass(frozen=True, eq=False)
class ServedModel:
    """Model of one checkpoint; it never changes.

    Parameters
    ----------
    predictor
        The model.
    run
        Run directory of its file, if it is in one.
    peer, round
        Peer and round that its file names, if it does; rounds are counted from 0.
    since
        Time since which it is served, in UTC.

    Examples
    --------
    A model of two columns, as ``p2pfl serve`` loads it from a file::

        served = ServedModel.read(Path("peer0.safetensors"), data, now=datetime.now(UTC))
        served.answer(b'[{"age": 63, "pain": "none"}]')
    """

    predictor: Predictor
    run: str | None
    peer: str | None
    round: int | None
    since: datetime

    @classmethod
    def read(cls, path: Path, data: bytes, *, now: datetime, trusted: str | None = None) -> Self:
        """Return the model in the content of a file.

        Parameters
        ----------
        path, data
            Where it is, and its content, which cannot change while the model is used.
        now
            Present time.
        trusted
            ``package.module:Class`` of a model of the user's own.

        Raises
        ------
        InputError
            The file is damaged, or its model has diverged or predicts nothing by itself.
        ModelError
            The parameters do not fit the model, or its class is not the trusted one.
        """
        saved, metadata = load_bytes(Path(path.name), data, model=trusted)
        if saved.exact is not None and not saved.exact.predicts_alone:
            raise InputError(
                f"{path.name} is a part of a model of several peers and predicts nothing by itself; use p2pfl predict "
                "--live"
            )
        # The figures of a model that follows from totals may be undefined, such as the dispersion under a ridge.
        if saved.exact is None and not all(
            bool(torch.isfinite(each).all()) for each in saved.module.state_dict().values()
        ):
            raise InputError(f"{path.name} has parameters that are not finite numbers; train the model again")
        round = metadata.get("round")
        if round is not None and ROUND.fullmatch(round) is None:
            raise InputError(f"{path.name} names a round that is no number; save the model again")
        place = path.absolute().parent
        run = place.parent.name if place.name == "peers" else None
        kind = Predictor if saved.fields else ArrayPredictor
        return cls(kind(saved), run, metadata.get("peer"), None if round is None else int(round), now)

    def like(self, other: Self) -> bool:
        """Return whether another model takes the same rows and predicts the same values."""
        mine, others = self.describe(), other.describe()
        return all(mine[key] == others[key] for key in ("task", "target", "classes", "columns", "shape", "raw"))

    def describe(self) -> dict[str, Any]:
        """Return what people and programs need to know before they ask."""
        saved = self.predictor.saved
        about = saved.about
        columns = [
            {"name": field.name, "levels": None if field.levels is None else list(field.levels)}
            for field in saved.fields
        ]
        return {
            "run": self.run,
            "peer": self.peer,
            "round": self.round,
            "since": self.since.astimezone(UTC).isoformat(timespec="seconds"),
            "model": about.model.name,
            "task": about.task,
            "target": about.outputs.target,
            "classes": list(saved.names),
            "columns": columns,
            "shape": None if columns else list(about.inputs.shape),
            "raw": about.inputs.raw,
        }

    def answer(self, body: bytes) -> dict[str, Any]:
        """Return the predictions for the rows of a request.

        Parameters
        ----------
        body
            JSON: a list of objects with the columns of the training, or for pictures and tokens a list of nested lists
            of numbers.

        Raises
        ------
        RequestError
            The rows do not fit, or the model gives no finite numbers for them.
        """
        saved = self.predictor.saved
        inputs = saved.about.inputs
        rows = decode(body, Any if saved.fields else list[form_of(inputs.shape, whole=inputs.whole)])  # type: ignore[misc]
        try:
            if saved.fields:
                predicted = self.predictor.predict(cells(rows))
            else:
                predicted = self.predictor.predict(np.array(rows, np.int64 if inputs.whole else np.float64))
        except InputError as error:
            raise RequestError(str(error)) from None
        except LearningError as error:
            raise RequestError(str(error), 500) from None
        answer: dict[str, Any] = {"run": self.run, "peer": self.peer, "round": self.round}
        if not predicted.classes:
            return answer | {"predictions": predicted.values.tolist()}
        return answer | {
            "predictions": predicted.labels,
            "classes": list(predicted.classes),
            "probabilities": predicted.values.tolist(),
        }


def form_of(shape: tuple[int, ...], *, whole: bool) -> Any:
    """Return the type of nested lists of one shape; other content is refused before it takes memory.

    Parameters
    ----------
    shape
        Shape of a sample.
    whole
        Whether the samples are whole numbers; otherwise they are numbers and truth values.

    Examples
    --------
    >>> msgspec.json.decode(b"[1, 2.5]", type=form_of((2,), whole=False))
    [1.0, 2.5]
    """
    form: Any = Whole if whole else float | bool
    for size in reversed(shape):
        form = Annotated[list[form], Meta(min_length=size, max_length=size)]
    return form


def decode(body: bytes, form: Any) -> list[Any]:
    """Return the rows of a request.

    Parameters
    ----------
    body
        JSON.
    form
        Type of the rows.

    Raises
    ------
    RequestError
        It is no JSON, has no row or too many, or a row has another form.

    Examples
    --------
    >>> decode(b"[[1, 2], [3, 4.5]]", list[form_of((2,), whole=False)])
    [[1.0, 2.0], [3.0, 4.5]]
    """
    try:
        rows = msgspec.json.decode(body, type=form)
    except msgspec.ValidationError as error:
        raise RequestError(f"the request has other samples than the model takes ({error}); see their `shape`") from None
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        raise RequestError("the request is not JSON; send a list of rows") from None
    if not isinstance(rows, list) or not rows:
        raise RequestError("the request is not a list of rows; send at least one row")
    if len(rows) > MAX_ROWS:
        raise RequestError(f"the request has {len(rows)} rows, more than {MAX_ROWS}; send several requests", 413)
    return rows


def cells(rows: list[Any]) -> TextCells:
    """Return rows of JSON as the cells of a table; null stands for a missing cell.

    Raises
    ------
    DataError
        A row is no object, has other columns than the first, or holds a list or an object.

    Examples
    --------
    >>> table = cells([{"age": 63.0, "pain": "none"}, {"age": None, "pain": "some"}])
    >>> table.column("age"), table.column("pain")
    (['63', ''], ['none', 'some'])
    """
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise DataError(f"{SOURCE}, row {number} is not an object; send a list of objects with a value by column")
        if row.keys() != rows[0].keys():
            raise DataError(f"{SOURCE}, row {number} has other columns than row 1; send null for a missing cell")
        for name, value in row.items():
            if isinstance(value, list | dict):
                raise DataError(f'{SOURCE}, row {number}, column "{name:.40}" holds several values; send one')
    columns = {name: lambda name=name: [cell_text(row[name]) for row in rows] for name in rows[0]}
    return TextCells(SOURCE, columns, rows=len(rows))
