"""Device on which the rows of a simulation live."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from p2pfl.algorithms import State
from p2pfl.core.neighbourhood import derived
from p2pfl.core.rows import to_device

HOST = torch.device("cpu")
"""Where everything is that peers would send, save and report."""


def moved(state: State, device: torch.device) -> State:
    """Return a state with all rows ``[R, ...]`` on a device; one number for each row stays on the CPU."""
    if state.rows.device == device:
        return state

    def there(values: torch.Tensor) -> torch.Tensor:
        return to_device(values, device) if values.dim() > 1 or device == HOST else values

    return replace(
        state,
        rows=there(state.rows),
        public=derived(there, state.public),
        memory=None if state.memory is None else {name: there(value) for name, value in state.memory.items()},
        extra={name: there(value) for name, value in state.extra.items()},
        known={name: derived(there, value) for name, value in state.known.items()},
    )


def on_host(values: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return tensors on the CPU, which waits for the device."""
    return {name: value.cpu() for name, value in values.items()}
