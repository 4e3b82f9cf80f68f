""":class:`KernelBlock`, the part of a joint kernel model that one party keeps, with its own training rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from p2pfl.core.encodings import Floats
from p2pfl.core.process import one_thread
from p2pfl.core.tensors import torch
from p2pfl.core.traits import ModelTraits
from p2pfl.data.data_description import Field
from p2pfl.learning.exact_model import Part, Tensors
from p2pfl.plugins.exact.tensor_model import Shapes, TensorModule
from p2pfl.plugins.vertical.block import PartModel

NAME = "vertical_kernel"
"""Name of the model in a file."""


@one_thread()
def squared_distances(one: Floats, other: Floats) -> Floats:
    """Return the squared distances of rows, ``[n, m]``.

    Examples
    --------
    >>> squared_distances(np.array([[3.0, 4.0]]), np.zeros((2, 2))).tolist()
    [[25.0, 25.0]]
    """
    squares = (one**2).sum(axis=1)[:, None] + (other**2).sum(axis=1)
    return np.asarray(np.maximum(squares - 2 * one @ other.T, 0.0))


@dataclass(frozen=True, kw_only=True)
class KernelBlock(PartModel):
    r"""Part of a kernel model that one party keeps.

    A prediction is :math:`b + \sum_i \alpha_i \exp(-\gamma \sum_p \lVert x_p - x_{p,i} \rVert^2)` over the
    standardised training rows of all parties p, of which each keeps its own; the label holder has :math:`\alpha` and
    b. Of two classes it is the logit of the second.

    Parameters
    ----------
    features
        Number of encoded columns F.
    rows
        Most training rows R, of which the first ``samples`` are used.
    classes
        2, in the file of the label holder of two classes; ``None`` elsewhere and for numbers.
    label
        True for the label holder.
    fields
        Columns of the party.

    Examples
    --------
    >>> KernelBlock(features=2, rows=100).shapes["support"]
    (100, 2)
    """

    name: ClassVar[str] = NAME
    traits: ClassVar[ModelTraits] = ModelTraits(converges=True, test=0.0)

    features: int
    rows: int
    classes: int | None = None

    @property
    def shapes(self) -> Shapes:
        """Shapes of the tensors by name; ``kept`` is 1 for columns that have a distance, and 0 for last levels."""
        shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("mean", "deviation", "kept"), (self.features,))
        shapes |= {"support": (self.rows, self.features)} | dict.fromkeys(("samples", "held_out", "gamma"), (1,))
        if self.label:
            shapes |= dict.fromkeys(("dual", "alone_dual"), (self.rows,))
            shapes |= dict.fromkeys(("bias", "alone_gamma", "alone_bias"), (1,))
        return Shapes(shapes)

    def module(self) -> torch.nn.Module:
        """Return the module of the label holder's own model, or of the distances to the training rows."""
        return KernelModule(self)

    def predicted(self, tensors: Tensors, part: Part) -> Floats:
        """Return what :meth:`module` does."""
        features = part.features.astype(np.float64)
        return self.outputs_alone(tensors, features) if self.label else self.predictor_of(tensors, features)

    def predictor_of(self, tensors: Tensors, features: Floats) -> Floats:
        """Return the squared distances of rows to the training rows in the own columns, ``[n, samples]``."""
        standard = (features - tensors["mean"]) / tensors["deviation"] * tensors["kept"]
        return squared_distances(standard, tensors["support"][: int(tensors["samples"][0])])

    def absent_predictor(self, tensors: Tensors) -> Floats:
        """Return the squared distances of a row that the party lacks, ``[samples]``; 0 unless it may lack some."""
        if not self.may_lack:
            return np.zeros(int(tensors["samples"][0]))
        features = np.array(tensors["mean"])
        features[-2:] = 0.0, 1.0
        return np.asarray(self.predictor_of(tensors, features[None])[0])

    def outputs_together(self, tensors: Tensors, features: Floats, foreign: Floats) -> Floats:
        """Return the outputs of all columns, ``[n, K]``, given the others' squared distances, ``[n, m]``."""
        distances = self.predictor_of(tensors, features) + foreign
        kernel = np.exp(-tensors["gamma"][0] * distances)
        return self._outputs(kernel @ tensors["dual"][: distances.shape[1]] + tensors["bias"])

    def outputs_alone(self, tensors: Tensors, features: Floats) -> Floats:
        """Return the outputs of the label holder's own model, ``[n, K]``."""
        distances = self.predictor_of(tensors, features)
        kernel = np.exp(-tensors["alone_gamma"][0] * distances)
        return self._outputs(kernel @ tensors["alone_dual"][: distances.shape[1]] + tensors["alone_bias"])

    def _outputs(self, values: Floats) -> Floats:
        """Return predictions or logits, ``[n, K]``."""
        return values[:, None] if self.classes is None else np.column_stack([np.zeros(len(values)), values])

    def explained(self, tensors: Tensors, *, fields: Sequence[Field], classes: Sequence[str]) -> None:
        """Return nothing, as a kernel has no coefficient of a column."""
        del tensors, fields, classes


class KernelModule(TensorModule):
    """Torch module of a part.

    Parameters
    ----------
    block
        The part.
    """

    mean: torch.Tensor
    deviation: torch.Tensor
    kept: torch.Tensor
    support: torch.Tensor
    alone_bias: torch.Tensor
    alone_dual: torch.Tensor
    alone_gamma: torch.Tensor

    def __init__(self, block: KernelBlock) -> None:
        super().__init__(block.shapes)
        self.label, self.classes = block.label, block.classes

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the label holder's own model, or squared distances to the training rows, ``[n, R]``."""
        standard = (features - self.mean) / self.deviation * self.kept
        squares = (standard**2).sum(1)[:, None] + (self.support**2).sum(1)
        distances = (squares - 2 * standard @ self.support.T).clamp_min(0.0)
        if not self.label:
            return distances
        outputs = (torch.exp(-self.alone_gamma * distances) @ self.alone_dual + self.alone_bias)[:, None]
        return outputs if self.classes is None else torch.cat([torch.zeros_like(outputs), outputs], dim=1)
