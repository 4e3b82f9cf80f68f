"""Texts that an audit plants among the training samples of a trainer."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812 -- torch's own convention
from torch.utils.data import Dataset

from p2pfl.core.errors import ModelError

BLOCK_SIZE = 32
"""Texts that a model evaluates at a time."""


class PlantedSamples(Dataset[Any]):
    """Samples of a trainer, of which texts replace some.

    Parameters
    ----------
    own
        Samples, each a mapping with ``input_ids``.
    texts
        Tokens by the number of the sample that they replace.

    Examples
    --------
    >>> own = [{"input_ids": [1, 2], "labels": [-100, 2]}, {"input_ids": [3, 4], "labels": [3, 4]}]
    >>> PlantedSamples(own, {0: torch.tensor([7, 8])})[0]
    {'input_ids': [7, 8], 'labels': [7, 8]}
    """

    def __init__(self, own: Any, texts: Mapping[int, torch.Tensor]) -> None:
        self.own, self.texts = own, texts

    def __len__(self) -> int:
        return len(self.own)

    def __getitem__(self, number: int) -> dict[str, Any]:
        sample = dict(self.own[number])
        if number not in self.texts:
            return sample
        kept = {name: value for name, value in sample.items() if name in ("input_ids", "labels")}
        text = self.texts[number]
        made = {name: text.clone() if torch.is_tensor(value) else text.tolist() for name, value in kept.items()}
        return made | ({"seq_lengths": [len(text)]} if "seq_lengths" in sample else {})  # of what TRL packed


def planted(trainer: Any, texts: Mapping[int, torch.Tensor]) -> Any:
    """Return a trainer that trains on texts in place of samples; both have one model."""
    other = copy.copy(trainer)
    other.train_dataset = PlantedSamples(trainer.train_dataset, texts)
    return other


def text_length(trainer: Any, peer: str) -> int:
    """Return the number of tokens of the first training sample.

    Raises
    ------
    ModelError
        The samples are no sequences of tokens.
    """
    sample = trainer.train_dataset[0]
    if "input_ids" not in sample:
        raise ModelError(f"the samples of {peer} have no input_ids, so no texts can be planted; audit a model of text")
    return len(sample["input_ids"])


def text_losses(model: nn.Module, texts: torch.Tensor) -> torch.Tensor:
    """Return the losses of all next tokens of texts ``[m, T]``, ``[m]`` float64."""
    device = next(model.parameters()).device
    model.eval()
    losses = []
    with torch.no_grad():
        for some in torch.split(texts.to(device), BLOCK_SIZE):
            logits = model(input_ids=some).logits[:, :-1].double()  # [n, T - 1, V]
            losses.append(F.cross_entropy(logits.movedim(-1, 1), some[:, 1:], reduction="none").sum(1).cpu())
    return torch.cat(losses)
