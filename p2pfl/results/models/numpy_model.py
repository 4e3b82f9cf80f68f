""":class:`NumpyModel`, a saved model that predicts on devices without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from p2pfl.core.errors import ModelError
from p2pfl.core.tensors import torch
from p2pfl.learning.exact_model import ExactModel, Part

PERCEPTRONS = ("linear", "mlp")
"""Models of torch that predict without it."""

Outputs = Callable[[torch.Tensor], torch.Tensor]
"""Function from inputs ``[n, *shape]`` to logits, or predicted numbers."""


class NumpyModel(torch.nn.Module):
    """Model of the tensors of a file, without the modules of torch.

    Parameters
    ----------
    tensors
        Tensors of the file by name.
    outputs
        What the model computes.
    trained
        Names of the tensors whose type of numbers the inputs need.

    Examples
    --------
    >>> tensors = {"1.weight": torch.tensor([[1.0, 2.0]]), "1.bias": torch.tensor([0.5])}
    >>> NumpyModel(tensors, perceptron(tensors), trained=["1.weight"])(torch.tensor([[3.0, 4.0]])).tolist()
    [[11.5]]
    """

    def __init__(self, tensors: Mapping[str, torch.Tensor], outputs: Outputs, *, trained: Any = ()) -> None:
        super().__init__()
        self.tensors, self.outputs, self.trained = dict(tensors), outputs, tuple(trained)

    def state_dict(self, *_: Any, **__: Any) -> dict[str, torch.Tensor]:  # type: ignore[override]
        """Return the tensors by name."""
        return self.tensors

    def parameters(self, *_: Any, **__: Any) -> Iterator[Any]:
        """Return the tensors that were trained by gradients."""
        return iter([self.tensors[name] for name in self.trained])

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs for inputs ``[n, *shape]``."""
        return self.outputs(inputs)


def perceptron(tensors: Mapping[str, torch.Tensor]) -> Outputs:
    """Return what affine maps with ReLU between them compute, given weights and biases in the order of the layers."""
    values = [*tensors.values()]
    (weight, bias), *others = zip(values[::2], values[1::2], strict=True)

    def outputs(inputs: torch.Tensor) -> torch.Tensor:
        x = inputs.flatten(1) @ weight.T + bias
        for weight_after, bias_after in others:
            x = x.clamp_min(0) @ weight_after.T + bias_after
        return x

    return outputs


def of_perceptron(path: Path, about: Any, tensors: Mapping[str, torch.Tensor]) -> NumpyModel:
    """Return a linear model or a perceptron.

    Parameters
    ----------
    path
        Its file, for errors.
    about
        Its :class:`~p2pfl.results.models.model_file.ModelContent`.
    tensors
        Content of the file.

    Raises
    ------
    ModelError
        The tensors do not fit the description.
    """
    hidden = about.model.options.get("hidden", (64,) if about.model.name == "mlp" else ())
    whole = isinstance(hidden, list | tuple) and all(isinstance(width, int) and width > 0 for width in hidden)
    if not whole or about.model.options.keys() - {"hidden"} or (hidden and about.model.name == "linear"):
        raise ModelError(
            f"{path}: model {about.model.name!r} does not accept the options {about.model.options}; save it again"
        )
    widths = [int(np.prod(about.inputs.shape, dtype=object)), *hidden, about.outputs.classes or 1]
    shapes: dict[str, tuple[int, ...]] = {}
    for layer, (fan_in, fan_out) in enumerate(pairwise(widths)):
        shapes |= {f"{1 + 2 * layer}.weight": (fan_out, fan_in), f"{1 + 2 * layer}.bias": (fan_out,)}
    _check(path, about.model.name, shapes, tensors)
    ordered = {name: tensors[name] for name in shapes}
    return NumpyModel(ordered, perceptron(ordered), trained=ordered)


def of_exact(path: Path, name: str, model: ExactModel, tensors: Mapping[str, torch.Tensor]) -> NumpyModel:
    """Return a model that follows from totals.

    Parameters
    ----------
    path, name
        Its file and its name, for errors.
    model
        The model.
    tensors
        Content of the file.

    Raises
    ------
    ModelError
        The tensors do not fit the model.
    """
    _check(path, name, dict(zip(model.layout.names, model.layout.shapes, strict=True)), tensors)
    arrays = {key: tensor.double().numpy() for key, tensor in tensors.items()}

    def outputs(inputs: torch.Tensor) -> torch.Tensor:
        part = Part(inputs.flatten(1).numpy(), np.zeros(len(inputs)))
        return torch.from_numpy(np.asarray(model.predicted(arrays, part)))

    return NumpyModel(tensors, outputs)


def _check(path: Path, name: str, shapes: Mapping[str, tuple[int, ...]], tensors: Mapping[str, torch.Tensor]) -> None:
    """Refuse tensors with other names or shapes than those of a model; nothing takes the memory that a file claims."""
    found = {each: tuple(tensor.shape) for each, tensor in tensors.items()}
    if found != {each: tuple(shape) for each, shape in shapes.items()}:
        wrong = sorted(each for each in found.keys() | shapes.keys() if found.get(each) != shapes.get(each))
        raise ModelError(
            f"{path} does not fit the model {name} that it names (other sizes of {', '.join(wrong)}); save it again"
        )
