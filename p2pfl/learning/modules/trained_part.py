"""Division of a model into the row that a peer trains and the constants that all rows share."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch import nn

from p2pfl.core.errors import ModelError
from p2pfl.core.rows import Layout, raw
from p2pfl.learning import checks
from p2pfl.learning.dropout import KeyedDropout, key_dropout
from p2pfl.learning.models import fill
from p2pfl.learning.modules.model_copy import check_hooks_left, find_hooked, own_copy
from p2pfl.learning.modules.norms import STATISTIC_NAMES, Norm, replace_norms


@dataclass(frozen=True, eq=False)
class DividedModel:
    """Model, and the places of its tensors in a row.

    Parameters
    ----------
    model
        Model on the device, with keyed dropout.
    dropouts
        Keyed dropouts by the names of their keys.
    layout
        Places in a row: the trained parameters in the order of the model, then running statistics of local layers.
    trained
        Places of the trained parameters, the beginning of ``layout``.
    initial
        Initial row ``[P]`` on the CPU.
    saved
        Each name of the state dict with the name of its place in the row, empty for a constant, and the tensor.
    """

    model: nn.Module
    dropouts: dict[str, KeyedDropout]
    layout: Layout
    trained: Layout
    initial: torch.Tensor
    saved: Mapping[str, tuple[str, torch.Tensor]]

    @cached_property
    def constants(self) -> dict[str, torch.Tensor]:
        """Tensors that no peer trains, by their names in the state dict; empty unless there are frozen parameters."""
        constants = {name: value for name, (own, value) in self.saved.items() if not own}
        frozen = any(isinstance(value, nn.Parameter) for value in constants.values())
        return {name: value.detach() for name, value in constants.items()} if frozen else {}

    @cached_property
    def base(self) -> str:
        """Digest of the constants; empty if there are none."""
        return digest(self.constants)

    def state_dict(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return one row ``[P]`` under the names of the model, including frozen tensors."""
        return self._tensors(row, self.saved)

    def trained_tensors(self, row: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return one row ``[P]`` under the names of the model, without the constants."""
        return self._tensors(row, [name for name in self.saved if name not in self.constants])

    def row(self, tensors: Mapping[str, torch.Tensor], *, source: str) -> torch.Tensor:
        """Return the row ``[P]`` of a model that :meth:`trained_tensors` or :meth:`state_dict` returned.

        Parameters
        ----------
        tensors
            The tensors of the model.
        source
            Where they are from, for messages.

        Raises
        ------
        ModelError
            They are those of a model of another shape.
        """
        owners = {own: (name, value.shape) for name, (own, value) in self.saved.items() if own}
        wrong = [name for name, shape in owners.values() if name not in tensors or tensors[name].shape != shape]
        if unknown := sorted({*wrong} | {name for name in tensors if name not in self.saved}):
            raise ModelError(
                f"{source} is not of this model, which has another {', '.join(unknown[:3])}; take the model as it was, "
                "as the next run may differ in its other settings only"
            )
        values = {own: tensors[name].to(self.initial) for own, (name, _) in owners.items()}
        return self.layout.join({name: values[name] for name in self.layout.names})  # [P]

    def _tensors(self, row: torch.Tensor, names: Iterable[str]) -> dict[str, torch.Tensor]:
        trained = {name: part[0] for name, part in self.layout.split(row.detach().unsqueeze(0)).items()}
        saved = {name: self.saved[name] for name in names}
        return {name: trained.get(own, value).detach().cpu().clone() for name, (own, value) in saved.items()}


def divide_model(
    model: nn.Module,
    *,
    pretrained: Mapping[str, torch.Tensor] | str | Path | None,
    frozen: Sequence[str],
    norm: Norm | None,
    device: torch.device,
    dtype: torch.dtype,
) -> DividedModel:
    """Return a copy of a model, divided into a row and constants.

    Parameters
    ----------
    model, pretrained, frozen, norm, device, dtype
        As in :class:`p2pfl.learning.TorchLearner`.

    Raises
    ------
    ModelError
        The model cannot learn with others.
    """
    model = own_copy(model)
    before = find_hooked(model)
    if pretrained is not None:
        fill(model, pretrained)
    dropouts = key_dropout(model)
    checks.check_parameters(model)
    names = checks.trained_names(model, frozen)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name in names)
    local = replace_norms(model, norm)
    check_hooks_left(model, before)
    checks.check_modules(model)
    model.to(device, dtype)
    parameters = {name: value for name, value in model.named_parameters() if value.requires_grad}
    checks.check_trained(parameters)
    buffers = dict(model.named_buffers())
    statistics = {name: buffers[name] for path in local for name in (f"{path}.{kind}" for kind in STATISTIC_NAMES)}
    row = parameters | statistics
    kept = tuple(name for name in row if name.rpartition(".")[0] in local)
    trained, layout = _layout(parameters, kept), _layout(row, kept)
    initial = layout.join({name: value.detach().cpu() for name, value in row.items()})  # [P]
    own = {id(value): name for name, value in row.items()}  # one name for tied ones
    tensors = model.state_dict(keep_vars=True)
    saved = {name: (own.get(id(value), ""), value) for name, value in tensors.items()}
    return DividedModel(model, dropouts, layout, trained, initial, saved)


def digest(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return a digest of the names, shapes and numbers of tensors; empty for none.

    Fractions count as single precision, so that it does not depend on the number type of a training.

    Examples
    --------
    >>> digest({}), len(digest({"weight": torch.ones(2)}))
    ('', 64)
    """
    if not tensors:
        return ""
    hasher = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        hasher.update(f"\0{name}\0{tuple(tensor.shape)}\0".encode())
        hasher.update(raw((tensor.float() if tensor.is_floating_point() else tensor).contiguous().flatten()))
    return hasher.hexdigest()


def _layout(tensors: Mapping[str, torch.Tensor], kept: Sequence[str]) -> Layout:
    local = tuple(name for name in kept if name in tensors)
    return Layout(tuple(tensors), tuple(tuple(tensor.shape) for tensor in tensors.values()), local)
