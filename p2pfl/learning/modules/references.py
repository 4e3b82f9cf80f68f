"""Models of libraries by name, with weights from a file or from the library's own cache."""

from __future__ import annotations

import hashlib
import importlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
from torch import nn

from p2pfl.core.errors import ModelError
from p2pfl.core.imports import extra_library
from p2pfl.learning.modules.language import language

HUB_FILES = ("model.safetensors", "pytorch_model.bin")
"""Files of weights on the Hugging Face hub, the preferred first."""


def build_reference(
    reference: str, *, shape: tuple[int, ...], outputs: int, options: Mapping[str, Any], pretrained: str | Path | None
) -> nn.Module:
    """Build a model of torchvision, timm or transformers.

    Parameters
    ----------
    reference
        ``torchvision:NAME``, ``timm:NAME``, or ``transformers:CLASS``.
    shape
        Shape of one sample; timm's models take as many channels.
    outputs
        Number of outputs of the last layer.
    options
        Arguments of the model, and ``weights``: the name of weights of torchvision (``"DEFAULT"`` for the best), or
        true for those of timm. They must be in the library's cache. For transformers see
        :func:`p2pfl.learning.modules.language.language`.
    pretrained
        File of weights, in place of those of the cache.

    Returns
    -------
    torch.nn.Module
        The model. A last layer for another number of outputs than the weights' keeps its initial values.

    Raises
    ------
    ModelError
        The library is not installed, has no such model or weights, or the weights are not on this machine or do not
        fit.
    """
    library, _, name = reference.partition(":")
    if library == "transformers":
        model: nn.Module = language(name, outputs=outputs, **options)
        return model if pretrained is None else _fill(model, pretrained)
    if "checkpoint_path" in options:  # timm unpickles it
        raise ModelError("model.options.checkpoint_path may run code of its file; name the file in model.pretrained")
    package, settings = extra_library(library, extra="vision", key="model.name", refused=ModelError), dict(options)
    weights = settings.pop("weights", None)
    if library == "torchvision":
        model = _torchvision(package, name, outputs, settings)
    else:
        model = _timm(package, name, shape, outputs, settings)
    if pretrained is None and weights in (None, False):
        return model
    if pretrained is None:
        cached = _find_torchvision_file if library == "torchvision" else _find_timm_file
        pretrained = cached(package, name, weights)
    return adopt_weights(model, read_weights(pretrained), outputs=outputs, source=str(pretrained))


def _fill(model: nn.Module, pretrained: str | Path) -> nn.Module:
    """Load values into a model of transformers, such as the adapters of another run; other names keep theirs."""
    unknown = model.load_state_dict(read_weights(pretrained), strict=False).unexpected_keys
    if unknown:
        raise ModelError(
            f"model.pretrained contains {', '.join(unknown[:3])}, which the model does not have; drop these"
        )
    return model


def _torchvision(library: Any, name: str, outputs: int, options: Mapping[str, Any]) -> nn.Module:
    if name not in library.models.list_models():
        raise ModelError(f'torchvision has no model "{name}"; torchvision.models.list_models() names them')
    model: nn.Module = library.models.get_model(name, weights=None, **{"num_classes": outputs, **options})
    return model


def _timm(library: Any, name: str, shape: tuple[int, ...], outputs: int, options: Mapping[str, Any]) -> nn.Module:
    if not library.is_model(name):
        raise ModelError(f'timm has no model "{name}"; timm.list_models() names them')
    channels = {"in_chans": shape[0]} if len(shape) == 3 else {}
    model: nn.Module = library.create_model(name, pretrained=False, **{"num_classes": outputs, **channels, **options})
    return model


def _find_torchvision_file(library: Any, name: str, weights: object) -> Path:
    kinds = library.models.get_model_weights(name)
    if weights not in kinds.__members__:
        names = ", ".join(kinds.__members__)
        raise ModelError(f"model.options.weights is {weights!r}, but torchvision:{name} has {names}; choose one")
    path = Path(torch.hub.get_dir()) / "checkpoints" / str(kinds[weights].url).rpartition("/")[2]
    if not path.is_file():
        raise ModelError(
            f"the weights {weights} of torchvision:{name} are not on this machine ({path}); download them by `python "
            f"-c \"import torchvision; torchvision.models.get_model('{name}', weights='{weights}')\"`, or set "
            "model.pretrained to a file"
        )
    sign = re.search(r"-([0-9a-f]{8,})\.", path.name)  # torchvision names a file by the hash of its content
    if sign and not hashlib.sha256(path.read_bytes()).hexdigest().startswith(sign[1]):
        raise ModelError(f"{path} is damaged, as its name says another hash; remove it and download it again")
    return path


def _find_timm_file(library: Any, name: str, weights: object) -> Path:
    if weights is not True:
        raise ModelError(f"model.options.weights is {weights!r}, but timm names weights in model.name; set it to true")
    hub, settings = importlib.import_module("huggingface_hub"), library.get_pretrained_cfg(name)
    repository = getattr(settings, "hf_hub_id", None)
    for file in HUB_FILES if repository else ():
        path = hub.try_to_load_from_cache(repository, file)
        if isinstance(path, str):
            return Path(path)
    raise ModelError(
        f'the weights of timm:{name} are not in the cache of the Hugging Face hub; download them by `python -c "import '
        f"timm; timm.create_model('{name}', pretrained=True)\"`, or set model.pretrained to a file"
    )


def read_weights(path: str | Path) -> dict[str, torch.Tensor]:
    """Return the state dict in a file of safetensors, or of ``torch.save`` with tensors alone.

    Raises
    ------
    ModelError
        The file is missing, damaged, or holds other objects than tensors.
    """
    try:
        if str(path).endswith(".safetensors"):
            return dict(safetensors.torch.load_file(path))
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise whatever they like
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"{path} is no file of weights ({type(error).__name__}: {reason}); write it again") from error
    if not isinstance(weights, dict) or not all(torch.is_tensor(value) for value in weights.values()):
        raise ModelError(f"{path} holds more than a state dict; save the state dict of the model alone")
    return weights


def adopt_weights(model: nn.Module, weights: Mapping[str, torch.Tensor], *, outputs: int, source: str) -> nn.Module:
    """Load weights into a model, except for a last layer of another number of outputs.

    Parameters
    ----------
    model
        Model; it is changed.
    weights
        State dict.
    outputs
        Number of outputs of the model.
    source
        Name of the weights for errors.

    Raises
    ------
    ModelError
        Other tensors than those of a last layer are missing, unknown or of another shape.
    """
    own = model.state_dict()
    other = {name for name, value in weights.items() if name in own and own[name].shape != value.shape}
    body = {name for name in other if own[name].shape != (outputs, *weights[name].shape[1:])}
    unknown, missing = weights.keys() - own.keys(), own.keys() - weights.keys()
    missing = {name for name in missing if not name.endswith("num_batches_tracked")}
    for wrong, what in ((body, "other shapes for"), (unknown, "the unknown"), (missing, "no")):
        if wrong:
            raise ModelError(
                f"the weights in {source} have {what} {', '.join(sorted(wrong)[:3])}; take those of the same model"
            )
    model.load_state_dict({name: value for name, value in weights.items() if name not in other}, strict=False)
    return model
