r"""Dropout drawn by key, so that a peer drops the same units alone and among a thousand.

The mask is a pure function of ``(seed, "dropout", peer, round, step, layer)`` and of the place in the activation.
It hashes a counter by integer operations of torch alone, which give the same bits on every device and under
``vmap``; torch's own generators do neither.
"""

import torch
from torch import nn

from p2pfl.core.draws import FIRST_FACTOR, GOLDEN_STEP, scramble, wrap_int64


def mask(key: torch.Tensor, counter: torch.Tensor, *, layer: int, p: float) -> torch.Tensor:
    """Return the mask of units that stay: true with probability ``1 - p``.

    Parameters
    ----------
    key
        Int64, broadcastable against ``counter``.
    counter
        Int64: the place of each unit, ``sample * units + unit``.
    layer
        Index of the dropout layer in the model.
    p
        Probability of dropping a unit, to 24 bits.

    Returns
    -------
    torch.Tensor
        Bool, in the shape of ``key`` and ``counter`` together.

    Examples
    --------
    >>> stays = mask(torch.tensor(7), torch.arange(100_000), layer=0, p=0.25)
    >>> round(stays.double().mean().item(), 2)
    0.75
    """
    bits = scramble(counter * GOLDEN_STEP + scramble(key + wrap_int64(layer * FIRST_FACTOR)))
    stays: torch.Tensor = ((bits >> 40) & 0xFFFFFF) >= round(p * 2**24)
    return stays


class KeyedDropout(nn.Module):
    """:class:`torch.nn.Dropout` whose mask is a function of ``key``, sample and unit.

    Parameters
    ----------
    p
        Probability of dropping a unit.
    layer
        Index of the dropout layer in the model.
    """

    key: torch.Tensor
    calls = 0
    """Number of calls in this step; a model may use one dropout in several places."""

    def __init__(self, p: float, *, layer: int) -> None:
        super().__init__()
        self.p, self.layer = p, layer
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def stream(self, call: int) -> int:
        """Return the stream of masks for the n-th call in a step."""
        return self.layer + 1024 * call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Drop places of ``[B, *shape]`` and scale the others, during training only."""
        if not self.training or self.p == 0:
            return x
        counter = torch.arange(x.numel(), device=x.device).view(x.shape)
        stays = mask(self.key, counter, layer=self.stream(self.calls), p=self.p)
        self.calls += 1
        return x * stays.to(x.dtype) * (1 / (1 - self.p) if self.p < 1 else 0.0)


def key_dropout(model: nn.Module) -> dict[str, KeyedDropout]:
    """Replace every dropout of ``model`` in place; return the new layers by the names of their keys."""
    replaced: dict[int, KeyedDropout] = {}
    names: dict[str, KeyedDropout] = {}
    originals = []  # kept alive, so that no two modules share an id
    for path, module in list(model.named_modules()):
        for name, child in list(module._modules.items()):  # noqa: SLF001 -- named_children() hides repetitions
            if type(child) is not nn.Dropout:
                continue
            if id(child) not in replaced:
                replaced[id(child)] = KeyedDropout(child.p, layer=len(replaced))
                originals.append(child)
                names[f"{path}.{name}.key" if path else f"{name}.key"] = replaced[id(child)]
            setattr(module, name, replaced[id(child)])
    return names


def dropout_at(model: nn.Module, name: str) -> KeyedDropout:
    """Return the dropout of a model whose key has this name."""
    module = model.get_submodule(name.rpartition(".")[0])
    assert isinstance(module, KeyedDropout)  # noqa: S101 (the names are those of the keys of dropouts)
    return module
