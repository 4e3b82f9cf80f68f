"""Models that are on their way between peers after a round, as a checkpoint keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch

from p2pfl.encodings import Ints
from p2pfl.errors import InputError
from p2pfl.rows import Rows

PREFIX = "travelling."
"""Beginning of the names of tensors in a checkpoint."""


@dataclass(frozen=True)
class Travelling:
    """Models on their way after a gossip step, Q of them along an edge each, out of K different ones.

    All but the models are the same in all processes of a simulation.

    Attributes
    ----------
    rows
        Models of earlier gossip steps, ``[K, L]``, in the order of :meth:`codes`.
    edge
        Edge of each model on its way, ``[Q]`` int64.
    sent, due
        Gossip step in which it was sent, and the one by which it arrives, ``[Q]`` int64 each.
    newest
        Gossip step of the newest model that has arrived along each edge, ``[U]`` int64; -1 for none.
    step
        Number of gossip steps so far, ``[1]`` int64.

    Examples
    --------
    >>> one = torch.ones(1, dtype=torch.int64)
    >>> sent = Travelling(torch.zeros(1, 3), edge=0 * one, sent=one, due=5 * one, newest=-one, step=2 * one)
    >>> sent.codes(np.array([7]), peers=4).tolist()  # peer 3 sent it to peer 1 in gossip step 1
    [7]
    """

    rows: Rows
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
        return {PREFIX + each.name: getattr(self, each.name) for each in fields(self)}

    def codes(self, edges: Ints, *, peers: int) -> Ints:
        """Return the gossip step and sender of each model, as step * N + sender, ``[K]``, ascending.

        Parameters
        ----------
        edges
            Edges, each as receiver * N + sender, ``[U]``.
        peers
            Number N of peers.
        """
        found: Ints = np.unique(self.sent.numpy() * peers + edges[self.edge.numpy()] % peers)
        return found

    @classmethod
    def restore(cls, tensors: Mapping[str, torch.Tensor], *, edges: Ints, peers: int) -> Self:
        """Return what :meth:`tensors` returned.

        Parameters
        ----------
        tensors
            Tensors by name, others among them.
        edges, peers
            Arguments of :meth:`codes`.

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
        queue, numbers = (found.edge, found.sent, found.due), (found.newest, found.step)
        if any(each.dtype != torch.int64 or each.dim() != 1 for each in (*queue, *numbers)) or found.rows.dim() != 2:
            raise ValueError("numbers of models on their way have another shape or type")
        if len({len(each) for each in queue}) > 1 or len(found.step) != 1:
            raise ValueError("numbers of models on their way are missing")
        if len(found.newest) != len(edges):
            raise InputError("belongs to another topology")
        last = int(found.step) - 1
        if not (
            _within(found.edge, len(edges) - 1) and _within(found.sent, last) and _within(found.newest + 1, last + 1)
        ):
            raise ValueError("models on their way were sent along edges or in gossip steps that do not exist")
        if len(found.codes(edges, peers=peers)) != len(found.rows):
            raise ValueError(f"{len(found.rows)} models are on their way, but others were sent")
        return found


def _within(values: torch.Tensor, most: int) -> bool:
    """Return whether all values are from 0 to the largest one."""
    return bool(((values >= 0) & (values <= most)).all())
