"""State of a torch optimiser as the memory of a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from p2pfl.core.errors import ModelError
from p2pfl.core.rows import Layout
from p2pfl.plugins.language.adapters import AdapterRows, corner

ROUNDS = "rounds"
"""Memory of how many rounds have trained each tensor: in the first, the optimiser has no state."""


@dataclass(frozen=True)
class PeerMemory:
    """State of the optimiser of one peer.

    Parameters
    ----------
    values
        State by name: ``[Q]`` in the places of all trained tensors for state per parameter, on the device of the model;
        ``[T]`` on the CPU for one number per tensor.
    adapters
        Trained tensors. Their products have another basis in each round, so an optimiser begins again.
    """

    values: Mapping[str, torch.Tensor]
    adapters: AdapterRows

    @property
    def layout(self) -> Layout:
        """Places of all trained tensors."""
        return self.adapters.whole

    def write(self, optimiser: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]) -> None:
        """Give an optimiser the state of the last round."""
        if ROUNDS not in self.values:
            return
        number = {name: index for index, name in enumerate(self.layout.names)}
        split = {key: self.layout.split(value) for key, value in self.values.items() if self._is_whole(value)}
        counts = {key: value.cpu() for key, value in self.values.items() if key not in split}
        there = {id(each) for group in optimiser.param_groups if _counts_there(group) for each in group["params"]}
        for name, parameter in _held(optimiser, parameters).items():
            if counts[ROUNDS][number[name]]:
                state = optimiser.state[parameter]
                for key, parts in split.items():
                    state[key] = parts[name][corner(parameter.shape)].to(parameter.device, copy=True)
                for key, value in counts.items():
                    if key != ROUNDS:
                        home = parameter.device if id(parameter) in there else value.device
                        state[key] = value[number[name]].to(home, copy=True)

    def read(self, optimiser: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]) -> dict[str, torch.Tensor]:
        """Return the state of an optimiser, and of tensors that it did not train what they had before.

        Raises
        ------
        ModelError
            The optimiser keeps something other than numbers per parameter or per tensor.
        """
        if self.adapters.way == "product":
            return {}
        after = {
            key: value.clone() if self._is_whole(value) else value.to("cpu", copy=True)
            for key, value in self.values.items()
        }
        count = len(self.layout.names)
        rounds = after.setdefault(ROUNDS, torch.zeros(count))
        for name, parameter in _held(optimiser, parameters).items():
            number = self.layout.names.index(name)
            rounds[number] += 1
            for key, value in optimiser.state[parameter].items():
                if torch.is_tensor(value) and value.shape == parameter.shape and value.dim():
                    if key not in after:
                        after[key] = torch.zeros(self.layout.size, device=value.device)
                    self.layout.split(after[key])[name][corner(value.shape)] = value.detach().float()
                elif isinstance(value, int | float) or (torch.is_tensor(value) and value.numel() == 1):
                    after.setdefault(key, torch.zeros(count))[number] = float(value)
                else:
                    raise ModelError(
                        f"{type(optimiser).__name__} keeps {key!r}, which is no number per parameter, from step to "
                        "step; choose adamw_torch or another optimiser of torch.optim"
                    )
        return after

    def _is_whole(self, value: torch.Tensor) -> bool:
        """Return whether a state has a number for each parameter, rather than one for each tensor."""
        return len(value) == self.layout.size


def _counts_there(group: Mapping[str, Any]) -> bool:
    """Return whether an optimiser keeps one number of a tensor where the tensor is, as torch has it."""
    return bool(group.get("fused") or group.get("capturable"))


def _held(optimiser: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]) -> dict[str, nn.Parameter]:
    """Return the parameters that an optimiser moves, by name."""
    own = {id(parameter) for group in optimiser.param_groups for parameter in group["params"]}
    return {name: value for name, value in parameters.items() if id(value) in own and value.requires_grad}
