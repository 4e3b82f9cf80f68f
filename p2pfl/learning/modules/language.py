"""Models of transformers, with LoRA adapters of peft: the base is constant, and only the adapters train."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from p2pfl.core.errors import ModelError
from p2pfl.core.imports import extra_library

LOCAL_FILES = {"local_files_only": True, "trust_remote_code": False}
"""Arguments with which transformers downloads nothing, and does not ask the user whether code of a folder may run."""

DROPOUT_SETTINGS = ("attention_probs_dropout_prob", "attn_pdrop", "attention_dropout")
"""Settings of dropout inside an attention, which draws from torch's global generator."""


class Tokens(nn.Module):
    """Model of transformers that takes token ids and returns logits.

    Logits of a class for each token are ``[n, C, T]``, classes second, as the cross-entropy takes them.

    Parameters
    ----------
    model
        Model of transformers.
    pad
        Token that pads sentences, which the attention leaves out; ``None`` for sentences of equal length.
    """

    def __init__(self, model: nn.Module, *, pad: int | None) -> None:
        super().__init__()
        self.model, self.pad = model, pad

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the logits of sentences ``[n, T]``."""
        mask = {} if self.pad is None else {"attention_mask": (tokens != self.pad).long()}
        logits: torch.Tensor = self.model(input_ids=tokens, **mask).logits
        return logits if logits.dim() == 2 else logits.movedim(-1, 1)


def language(
    name: str,
    *,
    outputs: int,
    path: str | None = None,
    config: Mapping[str, Any] | None = None,
    lora: Mapping[str, Any] | None = None,
    pad: int | None = None,
) -> Tokens:
    """Build a model of transformers.

    Parameters
    ----------
    name
        Class of transformers, such as ``AutoModelForSequenceClassification``.
    outputs
        Number of labels.
    path
        Folder of a pretrained model, or its name in the cache of the Hugging Face hub. Nothing is downloaded.
    config
        Settings of the model, with its ``model_type`` for a new one without ``path``. Dropout inside an attention is 0
        unless it is set here, because it draws from torch's global generator.
    lora
        Arguments of :class:`peft.LoraConfig`, such as ``r`` and ``target_modules``; without them all of it trains.
    pad
        Token that pads sentences, see :class:`Tokens`.

    Raises
    ------
    ModelError
        A library is not installed, there is no such class, or the model is not on this machine.
    """
    transformers = extra_library("transformers", extra="language", key="model.name", refused=ModelError)
    kind: Any = getattr(transformers, name, None)
    if getattr(kind, "from_pretrained", None) is None:
        raise ModelError(
            f'transformers has no model class "{name}"; name one such as AutoModelForSequenceClassification'
        )
    settings = _settings(transformers, path, dict(config or {}), outputs=outputs)
    if path is None:
        if hasattr(kind, "from_config"):
            model = kind.from_config(settings, trust_remote_code=False)
        else:  # it is no AutoModel
            model = kind._from_config(settings)  # noqa: SLF001
    else:
        try:
            model = kind.from_pretrained(path, config=settings, ignore_mismatched_sizes=True, **LOCAL_FILES)
        except (OSError, ValueError) as error:
            raise _absent(path, error) from None
    return Tokens(model if lora is None else add_adapters(model, lora, name=name), pad=pad)


def add_adapters(model: nn.Module, lora: Mapping[str, Any], *, name: str) -> nn.Module:
    """Return a model with LoRA adapters, of which all other parameters but a new head are frozen.

    Parameters
    ----------
    model
        Model of transformers.
    lora
        Arguments of :class:`peft.LoraConfig`.
    name
        Class of the model, which determines the task.

    References
    ----------
    Hu, Shen, Wallis, Allen-Zhu, Li, Wang, Wang, Chen, LoRA: low-rank adaptation of large language models, ICLR 2022.
    """
    if named := sorted(key for key in lora if key.startswith("megatron_")):
        raise ModelError(f"model.options.lora.{named[0]} makes peft import a module by its name; leave it out")
    peft = extra_library("peft", extra="language", key="model.name", refused=ModelError)
    tasks = {"SequenceClassification": "SEQ_CLS", "TokenClassification": "TOKEN_CLS", "CausalLM": "CAUSAL_LM"}
    task = next((value for end, value in tasks.items() if name.endswith(end)), None)
    try:
        adapted: nn.Module = peft.get_peft_model(model, peft.LoraConfig(**{"task_type": task, **lora}))
    except (TypeError, ValueError) as error:
        reason = " ".join(str(error).split())[:300]
        raise ModelError(f"model.options.lora does not fit the model ({reason}); fix it") from error
    return adapted


def _settings(transformers: Any, path: str | None, config: dict[str, Any], *, outputs: int) -> Any:
    """Return the configuration of a model, without dropout inside an attention."""
    if path is None and "model_type" not in config:
        raise ModelError(
            "model.options needs `path`, the folder of a pretrained model, or `config` with the `model_type` of a new "
            "one; set one of them"
        )
    try:
        if path is None:
            settings = transformers.AutoConfig.for_model(**config)
        else:
            settings = transformers.AutoConfig.from_pretrained(path, **LOCAL_FILES)
    except (OSError, ValueError) as error:
        raise _absent(path or str(config["model_type"]), error) from None
    for key in DROPOUT_SETTINGS:
        if getattr(settings, key, None) is not None:
            setattr(settings, key, config.get(key, 0.0))
    for key, value in config.items():
        if key != "model_type":
            setattr(settings, key, value)
    settings.num_labels = outputs
    return settings


def _absent(path: str, error: Exception) -> ModelError:
    reason = (str(error).splitlines() or [""])[0][:200]
    return ModelError(
        f"the model {path} is not on this machine ({reason}); download it by `hf download {path}`, or set "
        "model.options.path to its folder"
    )
