"""What a model must be to learn as a row; each refusal says what to do instead."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from traceback import walk_tb

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

from p2pfl.data import Dataset
from p2pfl.data.imported import told
from p2pfl.errors import LearningError, ModelError, P2PFLError
from p2pfl.learning.dropout import KeyedDropout
from p2pfl.learning.losses import Own, PerSample

DEVICES = ("auto", "cpu", "cuda", "mps")


def device_named(name: str) -> torch.device:
    """Return the device; ``auto`` is the first accelerator there is, else the CPU."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = name.partition(":")[0]
    if kind == "auto":
        return torch.device(next(each for each in ("cuda", "mps", "cpu") if there[each]))
    if not there.get(kind, False):
        raise ModelError(
            f"expected learning.device to be one of {', '.join(each for each in DEVICES if there.get(each, True))} "
            f"on this machine, got {name!r}; choose one of them"
        )
    return torch.device(name)


def check_precision(precision: str, *, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse number formats that the device or a row does not know."""
    if dtype not in (torch.float32, torch.float64) or (dtype == torch.float64 and device.type == "mps"):
        raise ModelError(
            f"expected rows of float32, or float64 on cpu and cuda, got {dtype} on {device.type}; use float32"
        )
    if precision not in ("full", "mixed"):
        raise ModelError(f"expected learning.precision 'full' or 'mixed', got {precision!r}; choose one")
    if precision == "mixed" and (device.type == "mps" or dtype != torch.float32):
        raise ModelError(
            f"expected float32 rows on cpu or cuda for mixed precision, got {dtype} on {device.type}; "
            "set learning.precision to 'full'"
        )


def check_modules(model: nn.Module) -> None:
    """Refuse what would make a row depend on other rows, on its padding, or on a global generator."""
    for name, module in model.named_modules():
        kind = type(module).__name__
        where = f"{kind} {name!r}" if name else kind
        if isinstance(module, _BatchNorm) or (isinstance(module, _NormBase) and module.track_running_stats):
            raise ModelError(
                f"expected a model whose row holds trained numbers only, got {where}, which keeps running statistics; "
                "use torch.nn.GroupNorm or torch.nn.LayerNorm instead"
            )
        dropping = isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0
        unkeyed = isinstance(module, _DropoutNd) and not isinstance(module, KeyedDropout)
        if unkeyed or dropping or isinstance(module, nn.RReLU):
            raise ModelError(
                f"expected random layers drawn by key, got {where}, which uses torch's global generator; "
                "use torch.nn.Dropout, which is replaced by a keyed one, or set its dropout to 0"
            )
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ModelError(
                f"expected parameters with a shape, got {name!r} without; run the lazy model once beforehand"
            )
        if not parameter.numel():
            raise ModelError(
                f"expected parameters of numbers, got {name!r} of shape {tuple(parameter.shape)}: widen it"
            )


def trained_names(model: nn.Module, frozen: Sequence[str]) -> tuple[str, ...]:
    """Names of the parameters that make up a row, in the model's order.

    Parameters
    ----------
    model
        Parameters of which ``requires_grad`` is false are frozen already.
    frozen
        Globs or prefixes of names to freeze besides: ``"encoder"`` holds ``encoder.0.weight``.
    """
    names = [name for name, _ in model.named_parameters()]

    def matches(name: str, pattern: str) -> bool:
        return name == pattern or name.startswith(pattern.rstrip(".") + ".") or fnmatchcase(name, pattern)

    for pattern in frozen:
        if not any(matches(name, pattern) for name in names):
            raise ModelError(
                f"expected names of parameters in model.frozen, got {pattern!r}: the model's are {', '.join(names)}"
            )
    trained = tuple(
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and not any(matches(name, pattern) for pattern in frozen)
    )
    if not trained:
        raise ModelError(
            "expected trained parameters, got a model of which every one is frozen; free some in model.frozen"
        )
    return trained


def check_fit(model: nn.Module, dataset: Dataset, features: torch.Tensor, *, scored: bool) -> int:
    """Run the model on a few samples and on one; return how many numbers its layers give for one.

    Parameters
    ----------
    model, dataset
        What is to fit what.
    features
        Of the few, ``[n, *shape]``.
    scored
        Whether our own loss or metrics look at its outputs.

    Raises
    ------
    ModelError
        If the model cannot take the features, or gives something other than the targets ask for.
    """
    numbers = [features[:1].numel()]

    def count(_module: nn.Module, _inputs: object, outputs: object) -> None:
        each = outputs if isinstance(outputs, tuple) else (outputs,)
        numbers.extend(tensor.numel() for tensor in each if torch.is_tensor(tensor))

    _outputs(model, features)
    hooks = [module.register_forward_hook(count) for module in model.modules() if not list(module.children())]
    try:
        outputs = _outputs(model, features[:1])
    finally:
        for hook in hooks:
            hook.remove()
    if not scored:
        return sum(numbers)
    shape = tuple(outputs.shape[1:])
    if dataset.classes is not None and (len(shape) != 1 or shape[0] < dataset.classes):
        raise ModelError(
            f"expected the model to give ({dataset.classes},) scores a sample, one for each class, got {shape}: "
            "match its last layer to the data, or set both learning.loss and learning.metrics"
        )
    wanted = tuple(dataset.targets.shape[1:])
    if dataset.classes is None and math.prod(shape) != math.prod(wanted):
        raise ModelError(
            f"expected the model to give {math.prod(wanted)} number a sample for regression, got {shape}: "
            "match its last layer to the data, or set both learning.loss and learning.metrics"
        )
    return sum(numbers)


def _outputs(model: nn.Module, features: torch.Tensor) -> torch.Tensor:
    """What the model gives for some samples, if it is one thing each, and can be trained."""
    shape = tuple(features.shape[1:])
    try:
        outputs = model(features)
    except Exception as error:
        raise ModelError(
            f"expected the model to take features of shape {shape}, got {told(error, module=type(model).__module__)} "
            f"on {_samples(len(features))}: match its first layer to the data"
        ) from error
    if not torch.is_tensor(outputs):
        raise ModelError(f"expected the model to return one tensor, got {type(outputs).__name__}: return the outputs")
    if outputs.dim() < 1 or len(outputs) != len(features):
        raise ModelError(
            f"expected the model to give its outputs sample by sample, got {tuple(outputs.shape)} for "
            f"{_samples(len(features))}: keep the first axis"
        )
    if not outputs.requires_grad or not outputs.is_floating_point():
        raise ModelError(
            "expected outputs of the model that follow from its trained parameters, got ones without a gradient: "
            "drop no_grad, detach, argmax and the like from its forward"
        )
    return outputs


def _samples(count: int) -> str:
    return "1 sample" if count == 1 else f"{count} samples"


def check_loss(loss: PerSample, outputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Refuse a loss that is not one number a sample to descend on.

    Parameters
    ----------
    loss
        A function of ours or of the user's.
    outputs, targets
        Of a few samples, ``[n, *outputs]`` and ``[n]``.
    """
    loss = loss if isinstance(loss, Own) else Own(loss, name=f"{loss.__module__}:{loss.__name__}")
    for many in (len(targets), 1):
        leaf = outputs[:many].detach().clone().requires_grad_()  # [many, *outputs]
        losses = _tried(loss, leaf, targets[:many])  # [many]
        wanted = f"expected {loss.name} to give numbers that can be differentiated"
        if losses.dtype != leaf.dtype:
            kinds = [str(dtype).removeprefix("torch.") for dtype in (leaf.dtype, losses.dtype)]
            raise ModelError(f"{wanted}, {kinds[0]} as the outputs, got {kinds[1]}: return losses.to(outputs.dtype)")
        try:
            torch.autograd.grad(losses.sum(), leaf)
        except RuntimeError as error:
            raise ModelError(
                f"{wanted}, got ones without a gradient ({str(error).splitlines()[0]}): compute them from the outputs "
                "by operations of torch that have one"
            ) from error
        if not losses.isfinite().all():
            raise ModelError(
                f"expected {loss.name} to give finite numbers, got {losses.detach().tolist()} for the first samples: "
                "mend it, or scale the features"
            )


def check_metrics(metrics: Mapping[str, PerSample], outputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Refuse a metric that is not one number a sample, ``[n]``, or that is called as what there is already."""
    if "loss" in metrics:
        raise ModelError('expected metrics under other names than the loss, got "loss": rename it in learning.metrics')
    for metric in metrics.values():
        for many in (len(targets), 1):
            scores = _tried(metric, outputs[:many].detach().clone(), targets[:many])  # [many]
            if scores.device != outputs.device:
                raise ModelError(f"expected a metric on {outputs.device}, got one on {scores.device}: return it there")


def _tried(function: PerSample, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Scores of a function before anything has started, so that what is wrong is wrong input."""
    try:
        return function(outputs, targets.clone())
    except LearningError as error:
        raise ModelError(str(error)) from error


@contextmanager
def blamed(model: nn.Module, *, doing: str) -> Iterator[None]:
    """Say in one sentence what a user's own module raised; what is raised elsewhere passes as it is.

    Raises
    ------
    LearningError
        If the error came out of code in a module of which the model has layers, other than torch's and ours.
    """
    try:
        yield
    except P2PFLError:
        raise
    except Exception as error:
        passed = [frame.f_globals.get("__name__") for frame, _ in walk_tb(error.__traceback__)]
        kinds = {type(layer).__module__ for layer in model.modules()}
        theirs = [kind for kind in passed if kind in kinds and kind.partition(".")[0] not in {"torch", "p2pfl"}]
        if not theirs:
            raise
        raise LearningError(
            f"expected the model to take every batch, got {told(error, module=theirs[0])} {doing}: mend its forward"
        ) from error
