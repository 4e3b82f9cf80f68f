"""Export of a saved model with its preprocessing, for software that knows nothing of p2pfl."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from p2pfl.core.errors import InputError, ModelError
from p2pfl.core.files import OWNER_ONLY, replace
from p2pfl.core.registry import find_entry_points, load
from p2pfl.results.models.predictor import Predictor

DOCUMENT = "p2pfl.json"
"""Name of the description inside a file of ``torch.export``; in ONNX, its key is ``p2pfl``."""

ANY_ROWS = ({0: torch.export.Dim("rows", min=1)},)
"""Shape of the input of a graph: any number of rows."""

GROUP = "p2pfl.exporters"
"""Group of entry points of further formats, each an :class:`Exporter`."""


@dataclass(frozen=True)
class Exporter:
    """A format of model files.

    Parameters
    ----------
    suffix
        Ending of the names of its files.
    encoded
        ``encoded(predictor, about)`` returns the file, which contains the JSON text ``about`` where it can; it raises
        :class:`p2pfl.core.errors.ModelError` for a model that the format cannot express.
    """

    suffix: str
    encoded: Callable[[Predictor, str], bytes]


def export(predictor: Predictor, path: str | Path, *, to: str) -> Path:
    """Write a model with its preprocessing to a file.

    A graph of torch or ONNX takes the columns of the table as one float64 matrix, see
    :class:`~p2pfl.results.models.prepared_model.Prepared`, and returns probabilities or predicted numbers. The file
    describes its columns and classes.

    Parameters
    ----------
    predictor
        The model.
    path
        File to write.
    to
        ``torch`` for a program of ``torch.export``, ``onnx``, or the name of an entry point, such as ``xgboost`` (a
        model file of XGBoost) and ``sklearn`` (a module of Python with an estimator of scikit-learn) for trees.

    Returns
    -------
    pathlib.Path
        The file.

    Raises
    ------
    InputError
        There is no such format, or it needs a package that is not installed.
    ModelError
        The model cannot be exported.
    StorageError
        The file cannot be written.
    """
    exporter, path = exporter_of(to), Path(path)
    if path.suffix != exporter.suffix:
        raise InputError(f"{path} is no name for the format {to}; end it with {exporter.suffix}")
    about = json.dumps(description(predictor), allow_nan=False)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of its own next version
            data = exporter.encoded(predictor, about)
    except (RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{predictor.saved.path} cannot be exported to {to} ({first}); try another format") from error
    replace(path, data, mode=OWNER_ONLY)  # it holds exact statistics of the data
    return path


def description(predictor: Predictor) -> dict[str, Any]:
    """Return the inputs and outputs of the exported graph, as JSON values.

    Returns
    -------
    dict
        ``columns`` in their order, each with its ``name``, the ``levels`` whose positions stand for them, and what a
        caller turns into NaN (``missing_codes``, numbers outside of ``range``) or days (``since`` a date);
        ``classes`` in the order of the probabilities, ``None`` for a regression; ``target``.
    """
    return {
        "version": 1,
        "columns": [
            {
                "name": field.name,
                "levels": None if field.levels is None else list(field.levels),
                "missing_codes": list(field.codes),
                "range": None if field.range is None else list(field.range),
                "since": field.since,
            }
            for field in predictor.fields
        ],
        "classes": list(predictor.saved.names) or None,
        "target": predictor.saved.about.outputs.target,
        "input": "float64 [rows, columns]: a number, or the position of a level counted from 0; NaN if missing",
        "output": "float64 [rows, classes] probabilities, or float64 [rows] numbers, or what a party without labels "
        "adds for each row, float64 [rows] or [rows, width]; NaN where a cell does not fit",
    }


def _example(predictor: Predictor) -> torch.Tensor:
    return torch.zeros(2, len(predictor.fields), dtype=torch.float64)


def _program(predictor: Predictor) -> torch.export.ExportedProgram:
    """Return the graph, which takes any number of rows."""
    return torch.export.export(predictor.module, (_example(predictor),), dynamic_shapes=ANY_ROWS, strict=False)


def _torch(predictor: Predictor, about: str) -> bytes:
    file = io.BytesIO()
    torch.export.save(_program(predictor), file, extra_files={DOCUMENT: about})
    return file.getvalue()


def _onnx(predictor: Predictor, about: str) -> bytes:
    try:
        import onnx  # noqa: F401, PLC0415 (an extra)
        import onnxscript  # noqa: F401, PLC0415
    except ImportError:
        raise InputError(
            'the format "onnx" needs onnx and onnxscript, which are not installed; run `pip install "p2pfl-mqtt[onnx]"`'
        ) from None
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    program = torch.onnx.export(
        _program(predictor),  # of a module the exporter would silently fix the number of rows where it has to
        dynamo=True,
        verbose=False,
        input_names=["columns"],
        output_names=["predictions"],
        dynamic_shapes=ANY_ROWS,
    )
    if program is None:
        raise RuntimeError("the exporter returned nothing")
    program.model.metadata_props["p2pfl"] = about
    data: bytes = program.model_proto.SerializeToString()
    return data


EXPORTERS: Mapping[str, Exporter] = {"torch": Exporter(".pt2", _torch), "onnx": Exporter(".onnx", _onnx)}
"""Formats for every model."""


def exporter_of(to: str) -> Exporter:
    """Return a format by its name.

    Raises
    ------
    InputError
        There is no such format.
    """
    names = [*EXPORTERS, *find_entry_points(GROUP)]
    if to not in names:
        raise InputError(f'"{to}" is not a format of models; choose from {", ".join(names)}')
    exporter: Exporter = EXPORTERS[to] if to in EXPORTERS else load(GROUP, to)
    return exporter
