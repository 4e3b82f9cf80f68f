"""Models that are on their way between peers after a round, as a checkpoint keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch

from p2pfl.core.encodings import Ints
from p2pfl.core.errors import InputError
from p2pfl.core.rows import Rows

PREFIX = "travelling."
"""Beginning of the names of tensors in a checkpoint."""


@dataclass(frozen=True)
class Travelling:
    """Models on their way after a gossip step, Q of them along an edge each, out of K different ones.

    All but the models are the same in all processes of a simulation. A process has the models of its own peers.

    Attributes
    ----------
    rows
        Models of earlier gossip steps, ``[K, L]``.
    code
        Gossip step and sender of each model, as step * N + sender, ``[K]`` int64, ascending; in all processes those of
        all models.
    edge
        Edge of each model on its way, ``[Q]`` int64.
    sent, due
        Gossip step in which it was sent, and the one by which it arrives, ``[Q]`` int64 each.
    newest
        Gossip step of the newest model that has arrived along each edge, ``[U]`` int64; -1 for none.
    step
        Number of gossip steps so far, ``[1]`` int64.
    """

    rows: Rows
    code: torch.Tensor
    edge: torch.Tensor
    sent: torch.Tensor
    due: torch.Tensor
    newest: torch.Tensor
    step: torch.Tensor

    @property
    def bytes(self) -> int:
        """Memory of all tensors."""
        return sum(value.nbytes for value in self.tensors().values())

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return all tensors by their names in a checkpoint."""
        return {PREFIX + name: value for name, value in {"rows": self.rows, **self.numbers()}.items()}

    def numbers(self) -> dict[str, torch.Tensor]:
        """Return all tensors but the models, by the names of their fields."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "rows"}

    @classmethod
    def restore(cls, tensors: Mapping[str, torch.Tensor], *, edges: Ints, peers: int) -> Self:
        """Return what :meth:`tensors` returned.

        Parameters
        ----------
        tensors
            Tensors by name, others among them.
        edges, peers
            Arguments of :func:`codes`.

        Raises
        ------
        KeyError
            A tensor is missing.
        ValueError
            The tensors do not belong together.
        InputError
            They belong to another topology.
        """
        found = cls(**{each.name: tensors[PREFIX + each.name] for each in fields(cls)})
        queue, others = (found.edge, found.sent, found.due), (found.code, found.newest, found.step)
        if any(each.dtype != torch.int64 or each.dim() != 1 for each in (*queue, *others)) or found.rows.dim() != 2:
            raise ValueError("numbers of models on their way have another shape or type")
        if len({len(each) for each in queue}) > 1 or len(found.step) != 1 or len(found.rows) != len(found.code):
            raise ValueError("models on their way, or numbers of them, are missing")
        if len(found.newest) != len(edges):
            raise InputError("belongs to another topology")
        steps = int(found.step)
        if not (_below(found.edge, len(edges)) and _below(found.sent, steps) and _below(found.newest + 1, steps + 1)):
            raise ValueError("models on their way were sent along edges or in gossip steps that do not exist")
        if not np.array_equal(codes(found.sent.numpy(), edges[found.edge.numpy()], peers=peers), found.code.numpy()):
            raise ValueError("models on their way are not those that were sent")
        return found


def codes(sent: Ints, edges: Ints, *, peers: int) -> Ints:
    """Return which models are on their way, each as gossip step * N + sender, ``[K]``, ascending.

    Parameters
    ----------
    sent, edges
        Gossip step and edge of each model on its way, the edge as receiver * N + sender, ``[Q]``.
    peers
        Number N of peers.

    Examples
    --------
    Peer 3 sent its model to peers 1 and 2 in gossip step 5:

    >>> codes(np.array([5, 5]), np.array([1 * 10 + 3, 2 * 10 + 3]), peers=10).tolist()
    [53]
    """
    found: Ints = np.unique(sent * peers + edges % peers)
    return found


def _below(values: torch.Tensor, limit: int) -> bool:
    """Return whether all values are from 0 to below a limit."""
    return bool(((values >= 0) & (values < limit)).all())
