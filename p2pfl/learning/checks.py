"""Checks of models, losses and metrics before anything starts; each error names a remedy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from traceback import walk_tb

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

from p2pfl.core.errors import LearningError, ModelError, P2PFLError
from p2pfl.core.imports import describe_error, kind_of
from p2pfl.data import Dataset
from p2pfl.learning.data_checks import inputs
from p2pfl.learning.dropout import KeyedDropout
from p2pfl.learning.losses import PerSample, UserFunction
from p2pfl.learning.modules.model_copy import check_leaves
from p2pfl.learning.modules.norms import NORM_REMEDY
from p2pfl.learning.set_scores import SetScore


def check_inputs(
    model: nn.Module, dataset: Dataset, features: torch.Tensor, *, few: int
) -> tuple[Size, torch.Tensor, torch.Tensor]:
    """Return the result of :func:`~p2pfl.learning.checks.check_fit` and the features that the model takes.

    Whole numbers become fractions if the model refuses them.

    Parameters
    ----------
    model
        Model on its device.
    dataset
        Data.
    features
        Features as :func:`inputs` returns them.
    few
        Number of samples to try.

    Raises
    ------
    ModelError
        The model refuses the features; the error is that of the features as they are.
    """
    if features.is_floating_point():
        return *check_fit(model, features[:few]), features
    try:
        return *check_fit(model, features[:few]), features
    except ModelError as error:
        parameter = next(model.parameters())
        fractions, _ = inputs(dataset, device=features.device, dtype=parameter.dtype, whole=False)
        try:
            return *check_fit(model, fractions[:few]), fractions
        except ModelError:
            raise error from None


DEVICES = ("auto", "cpu", "cuda", "mps")


def find_device(device: str | torch.device) -> torch.device:
    """Return the device of that name; ``auto`` is the first available accelerator, otherwise the CPU."""
    name = str(device)
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = name.partition(":")[0]
    if kind == "auto":
        return torch.device(next(each for each in ("cuda", "mps", "cpu") if there[each]))
    if not there.get(kind, False):
        raise ModelError(
            f"learning.device {name!r} is not available on this machine; choose one of "
            f"{', '.join(each for each in DEVICES if there.get(each, True))}"
        )
    return torch.device(name)


def check_precision(precision: str, *, device: torch.device, dtype: torch.dtype) -> None:
    """Raise :class:`ModelError` for number formats that the device or the parameters do not support."""
    if dtype not in (torch.float32, torch.float64) or (dtype == torch.float64 and device.type == "mps"):
        raise ModelError(
            f"dtype {dtype!r} is not supported on {device.type}; use torch.float32 or, except on mps, torch.float64"
        )
    if precision not in ("full", "mixed"):
        raise ModelError(f"precision is {precision!r}; use 'full' or 'mixed'")
    if precision == "mixed" and (device.type == "mps" or dtype != torch.float32):
        raise ModelError(
            f"mixed precision needs float32 parameters on cpu or cuda, but they are {dtype} on {device.type}; "
            "leave the precision 'mixed' out"
        )


def check_module(model: object) -> None:
    """Raise :class:`ModelError` unless a model is a module of torch."""
    if isinstance(model, type):
        raise ModelError(f"the model is the class {model.__name__}; pass an object, {model.__name__}(...)")
    if not isinstance(model, nn.Module):
        raise ModelError(f"the model is of type {type(model).__name__}; pass a torch.nn.Module")


def check_modules(model: nn.Module) -> None:
    """Raise :class:`ModelError` for layers that make rows depend on each other, padding, or a global generator."""
    for name, module in model.named_modules():
        kind = type(module).__name__
        where = f"{kind} {name!r}" if name else kind
        if isinstance(module, _BatchNorm):
            raise ModelError(f"{where} is batch normalisation, which gossip cannot average; {NORM_REMEDY}")
        if isinstance(module, _NormBase) and module.track_running_stats:
            raise ModelError(
                f"{where} keeps running statistics, which gossip cannot average; set its track_running_stats to False"
            )
        dropping = isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0
        unkeyed = isinstance(module, _DropoutNd) and not isinstance(module, KeyedDropout)
        if unkeyed or dropping or isinstance(module, nn.RReLU):
            raise ModelError(
                f"{where} uses torch's global generator; use torch.nn.Dropout, which is replaced by a keyed "
                "one, or set its dropout to 0"
            )


def check_parameters(model: nn.Module) -> None:
    """Raise :class:`ModelError` for parameters without a shape, without numbers, or with complex ones."""
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ModelError(f"parameter {name!r} has no shape; run the lazy model once beforehand")
        if not parameter.numel():
            raise ModelError(f"parameter {name!r} of shape {tuple(parameter.shape)} is empty; widen it")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            raise ModelError(f"{name!r} lies on the device meta, which holds no numbers; make the model on the CPU")
        if tensor.is_complex():
            raise ModelError(
                f"{name!r} holds complex numbers, whose imaginary parts would be lost; hold them as pairs of real "
                "numbers (torch.view_as_real)"
            )


def trained_names(model: nn.Module, frozen: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the trained parameters, which make up a row, in the order of the model.

    Parameters
    ----------
    model
        Model; its parameters without ``requires_grad`` are frozen already.
    frozen
        Globs or prefixes of further names to freeze: ``"encoder"`` includes ``encoder.0.weight``.

    Returns
    -------
    tuple of str
        Names of the parameters that train.

    Raises
    ------
    ModelError
        A pattern matches no parameter.
    """
    names = [name for name, _ in (*model.named_parameters(), *model.named_buffers())]

    def matches(name: str, pattern: str) -> bool:
        return name == pattern or name.startswith(pattern.rstrip(".") + ".") or fnmatchcase(name, pattern)

    for pattern in frozen:
        if not any(matches(name, pattern) for name in names):
            raise ModelError(f"{pattern!r} in model.frozen matches no parameter; the model has {', '.join(names)}")
    return tuple(
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and not any(matches(name, pattern) for pattern in frozen)
    )


def check_trained(parameters: Collection[str]) -> None:
    """Raise :class:`ModelError` if no parameter trains."""
    if not parameters:
        raise ModelError(
            "the model has no parameter to train; free some in model.frozen, or add a layer with parameters"
        )


@dataclass
class Size:
    """Size of a model's computation for one sample.

    Attributes
    ----------
    numbers
        Number of inputs, and of outputs of all layers.
    products
        Number of products of a weight and a number: each weight once for each place where a layer uses it.
    """

    numbers: int
    products: int = 0

    def count(self, module: nn.Module, _inputs: object, outputs: object) -> None:
        """Count a layer; a hook of its forward pass."""
        each = outputs if isinstance(outputs, tuple) else (outputs,)
        sizes = [tensor.numel() for tensor in each if torch.is_tensor(tensor)]
        self.numbers += sum(sizes)
        for weight in module.parameters(recurse=False):
            if weight.dim() > 1:  # [units, inputs, ...]: one product for each weight and place of a unit's outputs
                self.products += weight.numel() * max(1, max(sizes, default=0) // len(weight))


def check_fit(model: nn.Module, features: torch.Tensor) -> tuple[Size, torch.Tensor]:
    """Run the model on a few samples and on one; return what it computes for one sample, and its outputs.

    Parameters
    ----------
    model
        Model.
    features
        Features of the few samples, ``[n, *shape]``.

    Returns
    -------
    tuple
        Number of outputs of all layers for one sample, and the outputs of the model for that sample, ``[1, *outputs]``.

    Raises
    ------
    ModelError
        The model does not accept the features, or its outputs cannot be trained.
    """
    size = Size(features[:1].numel())
    _outputs(model, features)
    hooks = [module.register_forward_hook(size.count) for module in model.modules() if not list(module.children())]
    try:
        outputs = _outputs(model, features[:1])
    finally:
        for hook in hooks:
            hook.remove()
    return size, outputs


def _outputs(model: nn.Module, features: torch.Tensor) -> torch.Tensor:
    """Return the outputs of the model for some samples, if there is one per sample and they can be trained."""
    shape = tuple(features.shape[1:])
    try:
        outputs = model(features)
    except Exception as error:
        raise ModelError(
            f"the model fails on {_samples(len(features))} with features of shape {shape} "
            f"({describe_error(error, module=type(model).__module__)}); match its first layer to the data"
        ) from error
    if not torch.is_tensor(outputs):
        raise ModelError(f"the model returns {kind_of(outputs)}, not one tensor; return the outputs alone")
    if outputs.dim() < 1 or len(outputs) != len(features):
        raise ModelError(
            f"the model returns outputs of shape {tuple(outputs.shape)} for {_samples(len(features))}; keep the "
            "first axis, one output per sample"
        )
    if not outputs.requires_grad or not outputs.is_floating_point():
        raise ModelError(
            "the outputs of the model have no gradient with respect to its trained parameters; remove no_grad, "
            "detach, argmax and the like from its forward"
        )
    check_leaves(model, outputs)
    return outputs


def _samples(count: int) -> str:
    return "1 sample" if count == 1 else f"{count} samples"


def check_loss(loss: PerSample, outputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Raise :class:`ModelError` unless a loss returns one differentiable number per sample.

    Parameters
    ----------
    loss
        Built-in or user-defined loss.
    outputs, targets
        Outputs and targets of a few samples, ``[n, *outputs]`` and ``[n]``.
    """
    loss = loss if isinstance(loss, UserFunction) else UserFunction(loss, name=f"{loss.__module__}:{loss.__name__}")
    for many in (len(targets), 1):
        leaf = outputs[:many].detach().clone().requires_grad_()  # [many, *outputs]
        losses = _try_score(loss, leaf, targets[:many])  # [many]

        if losses.dtype != leaf.dtype:
            kinds = [str(dtype).removeprefix("torch.") for dtype in (leaf.dtype, losses.dtype)]
            raise ModelError(
                f"{loss.name} returns {kinds[1]}, but the outputs are {kinds[0]}; return losses.to(outputs.dtype)"
            )
        try:
            torch.autograd.grad(losses.sum(), leaf)
        except RuntimeError as error:
            raise ModelError(
                f"{loss.name} returns numbers without a gradient ({str(error).splitlines()[0]}); compute them "
                "from the outputs by differentiable operations of torch"
            ) from error
        if not losses.isfinite().all():
            raise ModelError(
                f"{loss.name} returns {losses.detach().tolist()} for the first samples, which are not finite; "
                "fix it, or scale the features"
            )


def check_metrics(
    metrics: Mapping[str, PerSample], whole: Mapping[str, SetScore], outputs: torch.Tensor, targets: torch.Tensor
) -> None:
    """Raise :class:`ModelError` unless metrics return one number per sample, ``[n]``, or a number for all of them."""
    if "loss" in {*metrics, *whole}:
        raise ModelError('a metric cannot have the name "loss"; rename it in learning.metrics')
    for metric in metrics.values():
        for many in (len(targets), 1):
            scores = _try_score(metric, outputs[:many].detach().clone(), targets[:many])  # [many]
            if scores.device != outputs.device:
                raise ModelError(
                    f"a metric returns a tensor on {scores.device}, not on {outputs.device}; return it there"
                )
    for score in whole.values():
        try:
            score.score([score.kept(outputs.detach().clone(), targets.clone())])
        except LearningError as error:
            raise ModelError(str(error)) from error


def _try_score(function: PerSample, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the scores of a function before anything starts, with its errors as errors of the input."""
    try:
        return function(outputs, targets.clone())
    except LearningError as error:
        raise ModelError(str(error)) from error


@contextmanager
def blame_model(model: nn.Module, *, doing: str) -> Iterator[None]:
    """Turn an error that a user's own module raises into one sentence; other errors pass unchanged.

    Raises
    ------
    LearningError
        The error comes from the code of a module that defines layers of the model, other than torch's and p2pfl's, or
        from autograd, for instance after an operation in place.
    """
    try:
        yield
    except P2PFLError:
        raise
    except Exception as error:
        passed = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)]
        kinds = {type(layer).__module__ for layer in model.modules()}
        theirs = [kind for kind in passed if kind in kinds and kind.partition(".")[0] not in {"torch", "p2pfl"}]
        if not theirs and not passed[-1].startswith("torch.autograd"):
            raise
        reason = describe_error(error, module=theirs[0] if theirs else type(model).__module__)
        raise LearningError(f"the model fails {doing} ({reason}); fix its forward") from error
