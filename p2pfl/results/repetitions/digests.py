"""Digests of the data of peers, by which a repetition of a run knows that it has the same data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import blake3

from p2pfl.core.tensors import torch
from p2pfl.data.dataset import Dataset, IntArray
from p2pfl.data.federation import Federation

BYTES_PER_BLOCK = 16 * 2**20
"""Bytes of features that are taken out of a data set at a time."""


def digests(federation: Federation, *, peers: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the digests of the samples of each local peer, by part; nothing where no peer has samples.

    A digest covers the features and targets as they are trained on, before peers scale them together, in the order
    of the data set. It lets others test a guess at the data of a peer, so it belongs to the owner of the data.

    Parameters
    ----------
    federation
        Data of the local peers.
    peers
        Those of them whose digests are wanted; all by default.

    Returns
    -------
    dict
        ``algorithm``, and ``peers`` with the digests of ``train``, ``validation`` and ``test`` by name.

    Examples
    --------
    >>> import numpy as np
    >>> own = {"ada": np.array([0, 1]), "bob": np.array([2])}
    >>> one, other = (Federation(Dataset(torch.arange(3.0)[:, None] + by, torch.zeros(3), None), own, own, own)
    ...               for by in (0, torch.tensor([[0], [0], [1]])))
    >>> [digests(one)["peers"][name] == digests(other)["peers"][name] for name in ("ada", "bob")]
    [True, False]
    """
    if federation.lazy or not any(map(len, federation.train.values())):
        return {}
    names = federation.peers if peers is None else tuple(peers)
    parts = {"train": federation.train, "validation": federation.validation, "test": federation.test}
    distinct = {id(part[name]): part[name] for part in parts.values() for name in names}  # peers may share a part
    digest_by_part = {key: _digest(federation.dataset, samples) for key, samples in distinct.items()}
    peers = {peer: {name: digest_by_part[id(part[peer])] for name, part in parts.items()} for peer in names}
    return {"algorithm": "blake3", "peers": peers}


def _digest(dataset: Dataset, samples: IntArray) -> str:
    """Return the digest of some samples: their number, and types, shapes and bytes of features and targets."""
    digest = blake3.blake3(str(len(samples)).encode())
    positions = torch.from_numpy(samples)
    for tensor in (dataset.features, dataset.targets):
        digest.update(f"{tensor.dtype} {[*tensor.shape[1:]]}".encode())
        height = max(1, BYTES_PER_BLOCK // max(1, tensor[:1].nbytes))
        for low in range(0, len(positions), height):
            block = tensor[positions[low : low + height]].cpu().contiguous()
            digest.update(block.numpy().data.cast("B") if block.numel() else b"")
    return digest.hexdigest()
