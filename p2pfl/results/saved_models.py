""":class:`SavedModels`, the models in a run directory."""

import json
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from p2pfl.core.errors import InputError

WORD_BYTES = 8
"""Bytes of the length of a header, and alignment of what follows it."""

METADATA = "__metadata__"
"""Key of the metadata in the header of a safetensors file."""

KEY = "p2pfl"
"""Key in the metadata of the description, which is that of ``model.json``."""

BEST_SUFFIX = ".best"
"""Ending of the name of the file with a peer's best model, beside that of its last one."""

OWN_SUFFIX = ".own"
"""Ending of the name of the file with a peer's last model and the effects of its own, which nobody else may have."""


def model_file(tensors: Mapping[str, Any], about: Mapping[str, str]) -> bytes:
    """Return the content of a safetensors file; equal tensors and metadata give equal bytes.

    The library writes metadata in another order each time, so that digests of equal models would differ.

    Parameters
    ----------
    tensors
        Tensors by name.
    about
        Metadata.

    Examples
    --------
    >>> import torch
    >>> one, other = ({name: torch.zeros(2) for name in order} for order in (("a", "b"), ("b", "a")))
    >>> model_file(one, {"peer": "ada", "round": "3"}) == model_file(other, {"round": "3", "peer": "ada"})
    True
    """
    from p2pfl.core.tensors import save  # noqa: PLC0415 (imports torch)

    data = save({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, {**about})
    end = WORD_BYTES + int.from_bytes(data[:WORD_BYTES], "little")
    header = json.loads(data[WORD_BYTES:end])
    if about:
        header = {METADATA: dict(sorted(header.pop(METADATA).items()))} | header
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % WORD_BYTES)  # tensors begin at a multiple of eight bytes
    return b"".join((len(text).to_bytes(WORD_BYTES, "little"), text, memoryview(data)[end:]))


class SavedModels(MutableMapping[str, Mapping[str, Any]]):
    """State dicts by peer, read from their files when they are asked for.

    Parameters
    ----------
    folder
        Folder of ``NAME.safetensors``.
    ending
        Ending of ``NAME`` for other models than the last ones, such as :data:`BEST_SUFFIX`.
    """

    def __init__(self, folder: Path, *, ending: str = "") -> None:
        self._folder, self._ending = folder, ending
        self._changed: dict[str, Mapping[str, Any] | None] = {}

    def __getitem__(self, peer: str) -> Mapping[str, Any]:
        """Return the model of a peer.

        Raises
        ------
        InputError
            The file is damaged.
        """
        import safetensors  # noqa: PLC0415

        from p2pfl.core.tensors import load_file  # noqa: PLC0415 (imports torch)

        if peer not in self._names():
            raise KeyError(peer)
        changed = self._changed.get(peer)
        if changed is not None:
            return changed
        path = self._folder / f"{peer}{self._ending}.safetensors"
        try:
            model: Mapping[str, Any] = load_file(path)
        except (OSError, safetensors.SafetensorError) as error:
            raise InputError(f"{path} is not a model ({error}); restore it from a copy") from None
        return model

    def describes_inputs(self, peer: str) -> bool:
        """Return whether the file of a peer describes the inputs of its model; a helper has a file without one."""
        import safetensors  # noqa: PLC0415 (as above)

        with safetensors.safe_open(self._folder / f"{peer}{self._ending}.safetensors", "np") as file:
            return KEY in (file.metadata() or {})

    def __setitem__(self, peer: str, model: Mapping[str, Any]) -> None:
        self._changed[peer] = model

    def __delitem__(self, peer: str) -> None:
        if peer not in self._names():
            raise KeyError(peer)
        self._changed[peer] = None

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._names()))

    def __len__(self) -> int:
        return len(self._names())

    def _names(self) -> set[str]:
        files = {path.name.removesuffix(".safetensors") for path in self._folder.glob("*.safetensors")}
        if self._ending:
            there = {name.removesuffix(self._ending) for name in files if _besides(name, self._ending, files)}
        else:
            there = {
                name for name in files if not any(_besides(name, ending, files) for ending in (BEST_SUFFIX, OWN_SUFFIX))
            }
        changed = {peer for peer, model in self._changed.items() if model is not None}
        return (there | changed) - {peer for peer, model in self._changed.items() if model is None}


def _besides(name: str, ending: str, files: set[str]) -> bool:
    """Return whether a file lies beside that of the last model of a peer."""
    return name.endswith(ending) and name.removesuffix(ending) in files


def best_file(peer: str) -> str:
    """Return the file of a peer's best model, from the run directory."""
    return f"peers/{peer}{BEST_SUFFIX}.safetensors"
