"""Boosting as a model file of XGBoost, written without XGBoost.

Thresholds, directions of missing values and categories are those of the model; values of leaves are rounded to single
precision, in which XGBoost adds them. The prediction without trees is part of the first tree of each class.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from p2pfl.core.errors import ModelError
from p2pfl.plugins.exact.trees.tree_model import BITS, Forest
from p2pfl.results.models.exporters import Exporter
from p2pfl.results.models.predictor import Predictor

Floats = npt.NDArray[np.float64]

VERSION = (2, 1, 0)
"""Release of XGBoost whose format this is; later ones read it."""

BOOSTING = ("boosting", "random_boosting")
"""Models whose trees are added up, as those of XGBoost are."""

ROOT = 2**31 - 1
"""Parent of a root."""

UNNAMEABLE = str.maketrans("[]<", "()_")
"""Characters that XGBoost refuses in the name of a feature."""


def encoded(predictor: Predictor, about: str) -> bytes:
    """Return the file.

    Parameters
    ----------
    predictor
        The model.
    about
        Description of its columns, which becomes the attribute ``p2pfl``.

    Raises
    ------
    ModelError
        The model is not boosting, or its features are scaled.
    """
    module, saved = predictor.saved.module, predictor.saved.about
    path = predictor.saved.path
    if not isinstance(module, Forest) or saved.model.name not in BOOSTING:
        raise ModelError(f"{path} is {saved.model.name}, and XGBoost's format takes boosting; choose another format")
    if np.any(np.asarray(saved.inputs.mean) != 0) or np.any(np.asarray(saved.inputs.deviation) != 1):
        raise ModelError(
            f"{path} takes scaled features, which XGBoost's format cannot express; train without data.scale and "
            "without `mean` and `deviation` of columns, which boosting does not need"
        )
    if module.logarithmic and (saved.outputs.mean, saved.outputs.deviation) != (0.0, 1.0):
        raise ModelError(
            f"{path} predicts scaled targets by logarithms, which XGBoost's format cannot express; train without "
            "`mean` and `deviation` of the target"
        )
    tensors = {name: tensor.numpy() for name, tensor in module.state_dict().items()}
    columns, count = module.columns, int(tensors["trees"][0]) * module.columns
    numbers = module.classes is None
    factor, shift = (saved.outputs.deviation, saved.outputs.mean) if numbers else (1.0, 0.0)
    base = tensors["base"] * factor + shift  # [C]
    features = len(module.seen)
    trees = [
        _tree(
            {name: tensors[name][number] for name in TREE if name in tensors},
            number=number,
            features=features,
            factor=factor,
            base=base[number] if number < columns else 0.0,
            categorical=module.seen.categorical,
        )
        for number in range(count)
    ]
    model = {
        "gbtree_model_param": {"num_trees": str(count), "num_parallel_tree": "1"},
        "iteration_indptr": list(range(0, count + 1, columns)),
        "tree_info": [number % columns for number in range(count)],
        "trees": trees,
    }
    document = {
        "version": list(VERSION),
        "learner": {
            "attributes": {"p2pfl": about},
            "feature_names": [name.translate(UNNAMEABLE) for name in module.seen.names],
            "feature_types": ["c" if category else "float" for category in module.seen.categorical],
            "gradient_booster": {"name": "gbtree", "model": model},
            "learner_model_param": {
                "base_score": ("1E0" if module.logarithmic else "0E0") if numbers else "5E-1",
                "boost_from_average": "0",
                "num_class": str(columns if columns > 1 else 0),
                "num_feature": str(features),
                "num_target": "1",
            },
            "objective": _objective(module.classes, str(saved.model.options.get("loss"))),
        },
    }
    return json.dumps(document, allow_nan=False).encode()


TREE = ("feature", "threshold", "left", "missing", "value", "gain", "count", "categories")
"""Tensors of a tree."""


LOGARITHMIC = {
    "poisson": {"name": "count:poisson", "poisson_regression_param": {"max_delta_step": "0"}},
    "gamma": {"name": "reg:gamma", "reg_loss_param": {"scale_pos_weight": "1"}},
}
"""Objectives whose predictions are exponentials of margins; others of numbers predict as squared errors do."""


def _objective(classes: int | None, loss: str) -> dict[str, Any]:
    if classes is None:
        return LOGARITHMIC.get(loss, {"name": "reg:squarederror", "reg_loss_param": {"scale_pos_weight": "1"}})
    if classes == 2:
        return {"name": "binary:logistic", "reg_loss_param": {"scale_pos_weight": "1"}}
    return {"name": "multi:softprob", "softmax_multiclass_param": {"num_class": str(classes)}}


def _tree(
    tree: dict[str, Floats], *, number: int, features: int, factor: float, base: float, categorical: tuple[bool, ...]
) -> dict[str, Any]:
    split = tree["feature"] >= 0
    size = 2 * int(split.sum()) + 1
    split = split[:size]
    feature, left = tree["feature"][:size].astype(np.int64), tree["left"][:size].astype(np.int64)
    parents = np.full(size, ROOT)
    inner = np.flatnonzero(split)
    parents[left[inner]] = parents[left[inner] + 1] = inner
    kind = split & np.asarray(categorical)[np.maximum(feature, 0)]
    values = np.where(split, tree["threshold"][:size], tree["value"][:size] * factor + base)
    right = {int(node): _right(tree["categories"][node]) for node in np.flatnonzero(kind)}
    sizes = [len(codes) for codes in right.values()]
    return {
        "tree_param": {
            "num_deleted": "0",
            "num_feature": str(features),
            "num_nodes": str(size),
            "size_leaf_vector": "1",
        },
        "id": number,
        "parents": parents.tolist(),
        "left_children": np.where(split, left, -1).tolist(),
        "right_children": np.where(split, left + 1, -1).tolist(),
        "split_indices": np.maximum(feature, 0).tolist(),
        "split_conditions": _single(np.where(kind, 0.0, values)),
        "split_type": kind.astype(int).tolist(),
        "default_left": (split & (tree["missing"][:size] > 0)).astype(int).tolist(),
        "categories": [code for codes in right.values() for code in codes],
        "categories_nodes": list(right),
        "categories_segments": np.cumsum([0, *sizes])[: len(sizes)].tolist(),
        "categories_sizes": sizes,
        "base_weights": _single(np.where(split, 0.0, values)),
        "loss_changes": _single(tree["gain"][:size]),
        "sum_hessian": _single(tree["count"][:size]),
    }


def _right(words: Floats) -> list[int]:
    """Return the categories that go right."""
    codes = np.arange(len(words) * BITS)
    left = (words.astype(np.int64)[codes // BITS] >> (codes % BITS)) & 1
    right: list[int] = codes[left == 0].tolist()
    return right


def _single(values: Iterable[float]) -> list[float]:
    """Return numbers in single precision."""
    numbers: list[float] = np.asarray(values, np.float32).astype(float).tolist()
    return numbers


EXPORTER = Exporter(".json", encoded)
"""The format ``xgboost``, which is loaded from files with this ending alone."""
