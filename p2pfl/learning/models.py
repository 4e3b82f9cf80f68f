"""Models by name, built under a keyed generator of their own."""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import nn

from p2pfl.errors import ModelError
from p2pfl.rows import draw


def linear(*, shape: Sequence[int], outputs: int) -> nn.Sequential:
    """Logistic or linear regression: one affine map."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), outputs))


def mlp(*, shape: Sequence[int], outputs: int, hidden: Sequence[int] = (64,)) -> nn.Sequential:
    """Affine maps with ReLU between them.

    Examples
    --------
    >>> [tuple(p.shape) for p in mlp(shape=(8, 8), outputs=10, hidden=[32]).parameters()]
    [(32, 64), (32,), (10, 32), (10,)]
    """
    widths = [math.prod(shape), *hidden]
    layers: list[nn.Module] = [nn.Flatten()]
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def cnn(*, shape: Sequence[int], outputs: int, hidden: Sequence[int] = (8, 16)) -> nn.Sequential:
    """3x3 convolutions, each with ReLU and pooling by two, then one affine map; for ``(C, H, W)``.

    Raises
    ------
    ModelError
        If the features are not images, or too small to be halved once for each width in ``hidden``.
    """
    if len(shape) != 3 or min(shape[1:]) < 2 ** len(hidden):
        raise ModelError(
            f"expected features (C, H, W) with H and W at least {2 ** len(hidden)} for the model 'cnn', "
            f"got {tuple(shape)}; use 'mlp', or fewer widths in model.hidden"
        )
    channels = [shape[0], *hidden]
    layers: list[nn.Module] = []
    for before, after in pairwise(channels):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    area = math.prod(side // 2 ** len(hidden) for side in shape[1:])
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels[-1] * area, outputs))


MODELS: Mapping[str, Callable[..., nn.Module]] = {"linear": linear, "mlp": mlp, "cnn": cnn}


def build(
    name: str,
    *,
    shape: Sequence[int],
    classes: int | None,
    seed: int,
    options: Mapping[str, object] | None = None,
) -> nn.Module:
    """Build a model for features of ``shape``; the same seed gives the same start on every peer.

    Parameters
    ----------
    name
        ``linear``, ``mlp``, ``cnn``, or ``package.module:Class`` for a subclass of ``torch.nn.Module`` of your own.
    shape
        Of one sample.
    classes
        How many there are; ``None`` for regression, which has one output.
    seed
        Key of the initial values. The generators of torch are left as they were.
    options
        Arguments of the model: ``hidden`` widths for ``mlp`` and ``cnn``, anything for your own.

    Raises
    ------
    ModelError
        If there is no such model, or it refuses the shape or its options.

    Examples
    --------
    >>> model = build("mlp", shape=(64,), classes=10, seed=7, options={"hidden": [32]})
    >>> sum(p.numel() for p in model.parameters())
    2410
    """
    options = dict(options or {})
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(draw(seed, "start").integers(2**63)))
            if name in MODELS:
                return MODELS[name](shape=tuple(shape), outputs=1 if classes is None else classes, **options)
            model = _class(name)(**options)
    except (TypeError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())
        raise ModelError(f"expected options that model {name!r} takes, got {options} ({said}); mend [model]") from error
    return model


def _class(name: str) -> type[nn.Module]:
    """Import the class that ``package.module:Class`` names; nothing else is ever called.

    An experiment file may come from somebody else, and so may a recording of a run. What such a file names is imported,
    which runs the code of that module, but ``subprocess:run`` is not a model and is not called with its options.
    """
    named = _imported(name)
    if not (isinstance(named, type) and issubclass(named, nn.Module)):
        kind = named.__name__ if isinstance(named, type) else f"a {type(named).__name__}"
        raise ModelError(
            f"model.name {name!r} names {kind}, not a subclass of torch.nn.Module, and was not called; name a class"
        )
    return named


def _imported(name: str) -> object:
    """Import what ``package.module:Class`` names."""
    module, colon, attribute = name.partition(":")
    if not colon:
        raise ModelError(
            f"expected {', '.join(MODELS)} or 'package.module:Class' as model.name, got {name!r}; choose one"
        )
    try:
        named: object = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ModelError(
            f"expected a model that can be imported, got {name!r} ({error}); check its spelling and the path"
        ) from error
    return named


def weights(pretrained: Mapping[str, torch.Tensor] | str | Path) -> dict[str, torch.Tensor]:
    """Return a state dict, from a safetensors file if a path is given."""
    if isinstance(pretrained, Mapping):
        return dict(pretrained)
    try:
        loaded: dict[str, torch.Tensor] = safetensors.torch.load_file(pretrained)
    except (OSError, safetensors.SafetensorError) as error:
        raise ModelError(
            f"expected a safetensors file as model.pretrained, got {pretrained} ({error}); convert it"
        ) from error
    return loaded


def fill(model: nn.Module, pretrained: Mapping[str, torch.Tensor] | str | Path) -> None:
    """Load values into a model; names that they lack keep theirs.

    Raises
    ------
    ModelError
        They do not fit the model.
    """
    try:
        unknown = model.load_state_dict(weights(pretrained), strict=False).unexpected_keys
    except RuntimeError as error:
        raise ModelError(
            f"expected model.pretrained to fit the model, got {' '.join(str(error).split())}; mend its shapes"
        ) from error
    if unknown:
        raise ModelError(
            f"expected names of the model in model.pretrained, got {', '.join(unknown)}; drop or rename these"
        )
