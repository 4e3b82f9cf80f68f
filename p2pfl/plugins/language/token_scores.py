"""Loss and perplexity by token, as exact totals."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812 -- torch's own convention

from p2pfl.data.dataset import IGNORED

FRACTION = 2.0**-24
"""Nats of one unit of a loss in a total."""

MAX_LOSS = 700.0
"""Nats above which a perplexity is no number."""


def labels_tokens(trainer: Any) -> bool:
    """Return whether a trainer evaluates a model that predicts the next token on labelled sequences."""
    model = trainer.model.get_base_model() if hasattr(trainer.model, "get_base_model") else trainer.model
    if trainer.eval_dataset is None or not type(model).__name__.endswith(("ForCausalLM", "LMHeadModel")):
        return False
    batch = next(iter(trainer.get_eval_dataloader()))
    return "labels" in batch and batch["labels"].shape == batch["input_ids"].shape


def count_losses(logits: torch.Tensor, labels: torch.Tensor) -> tuple[float, int]:
    r"""Return :math:`-\sum \log p` over the next tokens of sequences, and how many of them count.

    Parameters
    ----------
    logits
        ``[n, T, V]``.
    labels
        ``[n, T]``, the tokens themselves; :data:`p2pfl.data.dataset.IGNORED` where none counts.

    Examples
    --------
    >>> loss, count = count_losses(torch.zeros(1, 4, 8), torch.tensor([[-100, 5, -100, 2]]))
    >>> round(loss / math.log(8), 6), count
    (2.0, 2)
    """
    targets = labels[:, 1:].reshape(-1)
    outputs = logits[:, :-1].reshape(-1, logits.shape[-1])[targets != IGNORED]
    targets = targets[targets != IGNORED]
    losses = F.cross_entropy(outputs.float(), targets, reduction="none")
    return float(losses.double().sum()), len(targets)


def total_losses(trainer: Any) -> tuple[float, int]:
    """Return the sum of the losses of all tokens of the evaluation data of a trainer, and how many there are."""
    loss, count = 0.0, 0
    trainer.model.eval()
    with torch.no_grad():
        for batch in trainer.get_eval_dataloader():
            inputs = {name: value.to(trainer.model.device) for name, value in batch.items() if torch.is_tensor(value)}
            labels = inputs.pop("labels")
            more, tokens = count_losses(trainer.model(**inputs).logits, labels)
            loss, count = loss + more, count + tokens
    return loss, count


def scores(loss: float, count: int) -> dict[str, float]:
    """Return the loss of a token and the perplexity; NaN without tokens.

    Examples
    --------
    >>> scores(0.0, 3)
    {'loss': 0.0, 'perplexity': 1.0}
    """
    mean = loss / count if count else math.nan
    return {"loss": mean, "perplexity": math.inf if mean > MAX_LOSS else math.exp(mean)}
