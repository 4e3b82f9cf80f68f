"""What a model must be to learn as a row; each refusal says what to do instead."""

import math
from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.dropout import _DropoutNd

from p2pfl.data import Dataset
from p2pfl.errors import ModelError
from p2pfl.learning.dropout import KeyedDropout
from p2pfl.learning.losses import PerSample

DEVICES = ("auto", "cpu", "cuda", "mps")


def device_named(name: str) -> torch.device:
    """Return the device; ``auto`` is the first accelerator there is, else the CPU."""
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    kind = name.partition(":")[0]
    if kind == "auto":
        return torch.device(next(each for each in ("cuda", "mps", "cpu") if there[each]))
    if not there.get(kind, False):
        raise ModelError(
            f"learning.device should be one of {', '.join(each for each in DEVICES if there.get(each, True))} "
            f"on this machine, but {name!r} came; choose one of them"
        )
    return torch.device(name)


def check_precision(precision: str, *, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse number formats that the device or a row does not know."""
    if dtype not in (torch.float32, torch.float64) or (dtype == torch.float64 and device.type == "mps"):
        raise ModelError(
            f"rows should be float32, or float64 on cpu and cuda, but {dtype} on {device.type} came; use float32"
        )
    if precision not in ("full", "mixed"):
        raise ModelError(f"learning.precision should be 'full' or 'mixed', but {precision!r} came; choose one")
    if precision == "mixed" and (device.type == "mps" or dtype != torch.float32):
        raise ModelError(
            f"mixed precision needs float32 rows on cpu or cuda, but {dtype} on {device.type} came; "
            "set learning.precision to 'full'"
        )


def check_modules(model: nn.Module) -> None:
    """Refuse what would make a row depend on other rows, on its padding, or on a global generator."""
    for name, module in model.named_modules():
        kind = type(module).__name__
        where = f"{kind} {name!r}" if name else kind
        if isinstance(module, _BatchNorm) or (isinstance(module, _NormBase) and module.track_running_stats):
            raise ModelError(
                f"a row holds trained numbers only, but {where} keeps running statistics; "
                "use torch.nn.GroupNorm or torch.nn.LayerNorm instead"
            )
        dropping = isinstance(module, nn.RNNBase | nn.MultiheadAttention) and module.dropout > 0
        unkeyed = isinstance(module, _DropoutNd) and not isinstance(module, KeyedDropout)
        if unkeyed or dropping or isinstance(module, nn.RReLU):
            raise ModelError(
                f"random layers must be drawn by key, but {where} uses torch's global generator; "
                "use torch.nn.Dropout, which is replaced by a keyed one, or set its dropout to 0"
            )
    for name, parameter in model.named_parameters():
        if nn.parameter.is_lazy(parameter):
            raise ModelError(f"parameter {name!r} has no shape yet; run the lazy model once before handing it over")


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
                f"model.frozen names {pattern!r}, but the model's parameters are {', '.join(names)}; mend the name"
            )
    trained = tuple(
        name
        for name, parameter in model.named_parameters()
        if parameter.requires_grad and not any(matches(name, pattern) for pattern in frozen)
    )
    if not trained:
        raise ModelError("a row needs trained parameters, but every one is frozen; free some in model.frozen")
    return trained


def check_fit(model: nn.Module, dataset: Dataset, features: torch.Tensor, *, outputs_matter: bool) -> int:
    """Run the model on one sample; return how many numbers its layers give for it.

    Raises
    ------
    ModelError
        If the model cannot take the features, or gives something other than the targets ask for.
    """
    numbers = [features.numel()]

    def count(_module: nn.Module, _inputs: object, outputs: object) -> None:
        each = outputs if isinstance(outputs, tuple) else (outputs,)
        numbers.extend(tensor.numel() for tensor in each if torch.is_tensor(tensor))

    hooks = [module.register_forward_hook(count) for module in model.modules() if not list(module.children())]
    try:
        with torch.no_grad():
            outputs = model(features)
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ModelError(
            f"the model should take features of shape {tuple(features.shape[1:])}, but failed on one sample "
            f"({reason}); match its first layer to the data"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    if not outputs_matter:
        return sum(numbers)
    if not torch.is_tensor(outputs):
        raise ModelError(f"the model should return one tensor, but {type(outputs).__name__} came; return the outputs")
    shape = tuple(outputs.shape[1:])
    if dataset.classes is not None and (len(shape) != 1 or shape[0] < dataset.classes):
        raise ModelError(
            f"the model should give ({dataset.classes},) scores a sample, one for each class, but gave {shape}; "
            "match its last layer to the data"
        )
    wanted = tuple(dataset.targets.shape[1:])
    if dataset.classes is None and math.prod(shape) != math.prod(wanted):
        raise ModelError(
            f"the model should give {math.prod(wanted)} number a sample for regression, but gave {shape}; "
            "match its last layer to the data"
        )
    return sum(numbers)


def check_loss(loss: PerSample, outputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Refuse a loss that does not give one number for each sample."""
    losses = loss(outputs, targets)
    if tuple(losses.shape) != (len(targets),):
        raise ModelError(
            f"a loss should give one number for each sample, ({len(targets)},), but {tuple(losses.shape)} came; "
            "do not average it (reduction='none')"
        )
