"""Trees as a module of Python that needs numpy and scikit-learn alone.

The file is the text of ``scikit_learn.py.txt`` with the model as JSON inside, so it can be read, and nothing else runs
when it is imported.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import msgspec
import numpy as np

from p2pfl.core.errors import ModelError
from p2pfl.plugins.exact.trees.tree_model import Forest, Mean
from p2pfl.results.models.exporters import Exporter
from p2pfl.results.models.predictor import Predictor

TEMPLATE = "scikit_learn.py.txt"
"""Source of the file."""

MARK = 'MODEL: dict[str, Any] = json.loads("{}")'
"""Line of the template that the model replaces."""


def encoded(predictor: Predictor, about: str) -> bytes:
    """Return the file.

    Raises
    ------
    ModelError
        The model has no trees.
    """
    module = predictor.saved.module
    if not isinstance(module, Forest):
        raise ModelError(
            f"{predictor.saved.path} is {predictor.saved.about.model.name}, and the format sklearn takes boosting and "
            "forests; choose another format"
        )
    text = resources.files("p2pfl.plugins.exact.trees").joinpath(TEMPLATE).read_text(encoding="utf-8")
    head, mark, tail = text.partition(MARK)
    assert mark  # noqa: S101 (it is our own file)
    line = f"MODEL: dict[str, Any] = json.loads({json.dumps(_model(predictor, module, json.loads(about)))!r})"
    return f"{head}{line}{tail}".encode()


def _model(predictor: Predictor, module: Forest, about: dict[str, Any]) -> dict[str, Any]:
    """Return the model as JSON values."""
    inputs, outputs = predictor.saved.about.inputs, predictor.saved.about.outputs
    seen = module.seen
    tensors = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    averaged = isinstance(module, Mean)
    count = int(tensors["trees"][0]) * (1 if averaged else module.columns)
    names = ("feature", "threshold", "left", "missing", "value", "categories")
    columns = msgspec.to_builtins(inputs.columns or ())
    if dates := [field.name for field in predictor.fields if field.since is not None]:
        raise ModelError(
            f'column "{dates[0]}" has dates, which an estimator of scikit-learn does not read; export to onnx, and '
            "give the days since the date of the column"
        )
    return {
        "columns": columns,
        "absent": sorted(predictor.saved.missing),
        "names": list(seen.names),
        "places": [list(places) for places in seen.places],
        "categorical": list(seen.categorical),
        "mean": inputs.mean,
        "deviation": inputs.deviation,
        "classes": about["classes"],
        "shift": outputs.mean,
        "stretch": outputs.deviation,
        "base": tensors["base"].tolist(),
        "outputs": module.columns,
        "averaged": averaged,
        "logarithmic": module.logarithmic,
        "trees": [_tree({name: tensors[name][number] for name in names if name in tensors}) for number in range(count)],
    }


def _tree(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the nodes that a tree has."""
    size = 2 * int((tree["feature"] >= 0).sum()) + 1
    fields = {name: values[:size].tolist() for name, values in tree.items()}
    for name in ("feature", "left", "missing"):
        fields[name] = np.asarray(fields[name], np.int64).tolist()
    return fields


EXPORTER = Exporter(".py", encoded)
"""The format ``sklearn``."""
