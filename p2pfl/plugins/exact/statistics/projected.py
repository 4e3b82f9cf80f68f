"""Principal components with the names of the features."""

from __future__ import annotations

from typing import Any

import numpy as np

from p2pfl.data.data_description import Description as Meaning
from p2pfl.learning.exact_model import Tensors
from p2pfl.plugins.exact.statistics.pca import PCA


def projected(tensors: Tensors, model: PCA, meaning: Meaning) -> dict[str, Any]:
    """Return the components as JSON values: names, variances, their shares of the whole, and loadings.

    Parameters
    ----------
    tensors
        Tensors of ``model``.
    model
        The model.
    meaning
        Names of the columns.
    """
    names = [
        label
        for field in meaning.columns or ()
        for label in ([field.name] if field.levels is None else [f"{field.name}: {level}" for level in field.levels])
    ] or [f"x{number}" for number in range(model.features)]
    variance = tensors["variance"]
    whole = float(variance.sum())
    share = variance / whole if whole > 0 else np.zeros_like(variance)
    return {
        "samples": int(tensors["samples"][0]),
        "standardised": model.standardise,
        "names": names,
        "mean": tensors["mean"].tolist(),
        "deviation": tensors["deviation"].tolist(),
        "variance": variance.tolist(),
        "share": share.tolist(),
        "components": tensors["components"].tolist(),
    }
