"""Base of a language model as a folder of safetensors, whose pages all processes of a machine share."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import torch

from p2pfl.core.errors import ModelError
from p2pfl.core.imports import extra_library
from p2pfl.learning.modules.language import LOCAL_FILES

MALFORMED = (ValueError, KeyError, IndexError, struct.error)
"""Errors of libraries that read a malformed GGUF file."""


def unpack_gguf(file: str | Path, folder: str | Path, *, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Write the model and the tokenizer in a GGUF file to a folder, unless it is there already.

    Load the model by ``from_pretrained(folder, dtype=dtype)`` with the same type: transformers then maps its weights
    into memory, so that processes of a machine share them. Quantised numbers become those of ``dtype``.

    Parameters
    ----------
    file
        GGUF file of an architecture that transformers reads, such as Llama.
    folder
        Folder to write to.
    dtype
        Number type of the weights.

    Returns
    -------
    pathlib.Path
        The folder.

    Raises
    ------
    ModelError
        The file is missing, or transformers cannot read it.
    """
    file, folder = Path(file), Path(folder)
    if (folder / "model.safetensors").is_file():
        return folder
    transformers: Any = extra_library("transformers", extra="language", key="unpack_gguf", refused=ModelError)
    gguf = extra_library("gguf", extra="language", key="unpack_gguf", refused=ModelError)
    if not file.is_file():
        raise ModelError(f"there is no file {file}; give the path of a GGUF file")
    source = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name, **LOCAL_FILES}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
        model = transformers.AutoModelForCausalLM.from_pretrained(**source, dtype=dtype)
    except (OSError, *MALFORMED) as error:
        reason, remedy = " ".join(str(error).split())[:200], "take a file of another architecture"
        try:
            gguf.GGUFReader(file)
        except MALFORMED:
            remedy = "it is cut off, damaged or no GGUF file, so download it again"
        raise ModelError(f"transformers cannot read {file} ({reason}); {remedy}") from error
    model.hf_quantizer = None  # the weights are plain numbers now, and may be saved
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return folder
