"""Models by name, with initial values drawn by a keyed generator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from safetensors import SafetensorError

from p2pfl.core.draws import draw
from p2pfl.core.errors import ModelError
from p2pfl.core.imports import import_callable, kind_of
from p2pfl.core.process import seeded_torch
from p2pfl.core.rows import Layout
from p2pfl.core.tensors import load_file, torch
from p2pfl.learning.library_names import is_reference


def linear(*, shape: Sequence[int], outputs: int) -> torch.nn.Sequential:
    """Build a logistic or linear regression: one affine map."""
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(math.prod(shape), outputs))


def mlp(*, shape: Sequence[int], outputs: int, hidden: Sequence[int] = (64,)) -> torch.nn.Sequential:
    """Build a multi-layer perceptron: affine maps with ReLU between them.

    Examples
    --------
    >>> [tuple(p.shape) for p in mlp(shape=(8, 8), outputs=10, hidden=[32]).parameters()]
    [(32, 64), (32,), (10, 32), (10,)]
    """
    widths = [math.prod(shape), *hidden]
    layers: list[torch.nn.Module] = [torch.nn.Flatten()]
    for fan_in, fan_out in pairwise(widths):
        layers += [torch.nn.Linear(fan_in, fan_out), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], outputs))


def cnn(*, shape: Sequence[int], outputs: int, hidden: Sequence[int] = (8, 16)) -> torch.nn.Sequential:
    """Build a convolutional network for ``(C, H, W)``: 3x3 convolutions with ReLU and pooling, then an affine map.

    Raises
    ------
    ModelError
        The features are not images, or too small to be halved once for each width in ``hidden``.
    """
    if len(shape) != 3 or min(shape[1:]) < 2 ** len(hidden):
        raise ModelError(
            f"the model 'cnn' needs features (C, H, W) with H and W at least {2 ** len(hidden)}, but they are "
            f"{tuple(shape)}; use 'mlp', or fewer widths in model.hidden"
        )
    channels = [shape[0], *hidden]
    layers: list[torch.nn.Module] = []
    for before, after in pairwise(channels):
        layers += [torch.nn.Conv2d(before, after, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    area = math.prod(side // 2 ** len(hidden) for side in shape[1:])
    return torch.nn.Sequential(*layers, torch.nn.Flatten(), torch.nn.Linear(channels[-1] * area, outputs))


MODELS: Mapping[str, Callable[..., torch.nn.Module]] = {"linear": linear, "mlp": mlp, "cnn": cnn}


def build(
    name: str,
    *,
    shape: Sequence[int],
    classes: int | None,
    seed: int,
    options: Mapping[str, object] | None = None,
    outputs: int | None = None,
    pretrained: str | Path | None = None,
) -> torch.nn.Module:
    """Build a model for features of ``shape``; the same seed gives the same start on every peer.

    Parameters
    ----------
    name
        ``linear``, ``mlp``, ``cnn``; ``torchvision:NAME`` or ``timm:NAME``; or ``package.module:Class`` for your own
        subclass of ``torch.nn.Module``.
    shape
        Shape of one sample.
    classes
        Number of classes; ``None`` for regression, which has one output.
    seed
        Key of the initial values. The generators of torch keep their state.
    options
        Arguments of the model: ``hidden`` widths for ``mlp`` and ``cnn``, any for your own; for a model of a library
        also ``weights``, see :func:`p2pfl.learning.modules.references.build_reference`.
    outputs
        Number of outputs, if it is not that of the classes; not for your own.
    pretrained
        File of weights for a model of a library, whose last layer may have another number of outputs.

    Returns
    -------
    torch.nn.Module
        The model with its initial values.

    Raises
    ------
    ModelError
        There is no such model, or it does not accept the shape or the options.

    Examples
    --------
    >>> model = build("mlp", shape=(64,), classes=10, seed=7, options={"hidden": [32]})
    >>> sum(p.numel() for p in model.parameters())
    2410
    """
    options, usual = dict(options or {}), 1 if classes is None else classes
    wanted = usual if outputs is None else outputs
    try:
        with seeded_torch(int(draw(seed, "start").integers(2**63))):
            if name in MODELS:
                return MODELS[name](shape=tuple(shape), outputs=wanted, **options)
            if is_reference(name):
                from p2pfl.learning.modules.references import build_reference  # noqa: PLC0415 (it needs torch)

                return build_reference(name, shape=tuple(shape), outputs=wanted, options=options, pretrained=pretrained)
            model = _class(name)(**options)
    except (TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ModelError(f"model {name!r} does not accept the options {options} ({reason}); fix [model]") from error
    return model


def check_name(name: str, *, others: Iterable[str] = ()) -> None:
    """Raise :class:`ModelError` unless there is a model of this name; a user's own class is imported.

    Parameters
    ----------
    name
        The name.
    others
        Names of models that are built elsewhere, for the error.
    """
    if name not in MODELS and not is_reference(name):
        _class(name, others)


def _class(name: str, others: Iterable[str] = ()) -> type[torch.nn.Module]:
    """Import the class that ``package.module:Class`` names; p2pfl never calls anything else.

    An experiment file may come from a third party. p2pfl imports what such a file names, which runs the code of that
    module, but ``subprocess:run`` is not a model, and p2pfl does not call it.
    """
    if ":" not in name:
        raise ModelError(
            f"model.name {name!r} is unknown; use {', '.join([*MODELS, *others])} or 'package.module:Class'"
        )
    named = import_callable(name, key="model.name", sought="a subclass of torch.nn.Module", refused=ModelError)
    if not (isinstance(named, type) and issubclass(named, torch.nn.Module)):
        kind = named.__name__ if isinstance(named, type) else kind_of(named)
        raise ModelError(
            f"model.name {name!r} is {kind}, not a subclass of torch.nn.Module, and was not called; name a class, or "
            'set learning.algorithm = "exact" for a model from totals'
        )
    return named


def names_models(pretrained: object) -> bool:
    """Return whether a value of ``model.pretrained`` names a file for each peer.

    Examples
    --------
    >>> names_models("runs/clinic-20300101-120000/peers/{peer}.safetensors"), names_models("start.safetensors")
    (True, False)
    """
    return isinstance(pretrained, str | Path) and "{peer}" in str(pretrained)


def model_file_of(pretrained: str, peer: str) -> str:
    """Return the path of the file of a peer.

    Raises
    ------
    ModelError
        There is no such file.
    """
    file = pretrained.replace("{peer}", peer)
    if not Path(file).is_file():
        raise ModelError(
            f'"{peer}" has no model in {Path(file).parent}; leave it out of the run, or let all peers begin with one '
            "model, whose file you name as model.pretrained"
        )
    return file


def read_row(file: str, *, layout: Layout, dtype: torch.dtype) -> torch.Tensor:
    """Return the row ``[P]`` of a file of safetensors with the tensors of a layout.

    Raises
    ------
    ModelError
        It cannot be read, or holds another model.
    """
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ModelError(f"model.pretrained: {file} is no file of safetensors ({error}); name another") from None
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if shapes != dict(zip(layout.names, layout.shapes, strict=True)):
        raise ModelError(f"model.pretrained: {file} holds {shapes}, not the tensors of this model; name another")
    return layout.join({name: tensors[name].to(dtype) for name in layout.names})


def weights(pretrained: Mapping[str, torch.Tensor] | str | Path) -> dict[str, torch.Tensor]:
    """Return a state dict as it is, or read it from a file of safetensors or of ``torch.save``."""
    if isinstance(pretrained, Mapping):
        return dict(pretrained)
    from p2pfl.learning.modules.references import read_weights  # noqa: PLC0415 (it needs torch)

    try:
        return read_weights(pretrained)
    except ModelError as error:
        raise ModelError(f"model.pretrained: {error}") from None


def fill(model: torch.nn.Module, pretrained: Mapping[str, torch.Tensor] | str | Path) -> None:
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
            f"model.pretrained does not fit the model ({' '.join(str(error).split())}); fix its shapes"
        ) from error
    if unknown:
        raise ModelError(
            f"model.pretrained contains {', '.join(unknown)}, which the model does not have; drop or rename these"
        )
