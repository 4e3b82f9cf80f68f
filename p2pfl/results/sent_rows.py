"""Rows that peers have sent, as files beside the evidence: with them anybody computes the mixing of a round again.

Each file is ``rows/PEER/DIGEST.row``, whose name is the digest that the chain of the sender has of the row as it
travels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from safetensors import SafetensorError, safe_open

from p2pfl.core.errors import InputError, StorageError
from p2pfl.core.files import DRIVE, OWNER_ONLY, Disk, replace
from p2pfl.core.neighbourhood import Released
from p2pfl.core.tensors import TORCH_INSTALLED, save, torch
from p2pfl.results.evidence import row_digest

FOLDER = "rows"
"""Name of the folder in a run directory; the peers keep their rows where it exists, each in a folder of its own."""

SUFFIX = ".row"


def keep_rows(folder: Path) -> None:
    """Have the peers of a run directory keep what they send, from their next start on."""
    (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)


@dataclass(frozen=True)
class SentRow:
    """A row as it travels.

    Attributes
    ----------
    row, mass
        Numbers ``[P]``, and their weight, if there is one.
    """

    row: torch.Tensor
    mass: float | None

    @classmethod
    def of(cls, released: Released) -> Self:
        """Return the released row of one peer."""
        return cls(released.row(0), None if released.masses is None else float(released.masses[0, 0]))

    @property
    def digest(self) -> str:
        """Digest of the row in the evidence."""
        return row_digest(self.row, self.mass)

    def write(self, folder: Path, *, disk: Disk = DRIVE) -> None:
        """Write the row for its owner alone.

        Raises
        ------
        StorageError
            The disk is full or not writable.
        """
        about = {} if self.mass is None else {"mass": repr(self.mass)}
        try:
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{folder} cannot be made ({error.strerror}); check the permissions") from None
        data = save({"row": self.row.detach().cpu().contiguous()}, about)
        replace(folder / f"{self.digest}{SUFFIX}", data, mode=OWNER_ONLY, disk=disk)


def read_row(runs: Sequence[Path], peer: str, digest: str, *, size: int) -> SentRow | None:
    """Return a row of a peer from the first of some run directories that has it; ``None`` if none has.

    Parameters
    ----------
    runs
        Run directories.
    peer, digest
        Who sent the row, and its digest.
    size
        Most numbers of a row; a file with more is not read.

    Raises
    ------
    InputError
        The file is not the row of its digest, or has more numbers.
    """
    paths = (run / FOLDER / peer / f"{digest}{SUFFIX}" for run in runs)
    path = next((each for each in paths if each.is_file()), None)
    if path is None:
        return None
    try:
        with safe_open(path, framework="pt" if TORCH_INSTALLED else "np") as file:
            shape, mass = file.get_slice("row").get_shape(), (file.metadata() or {}).get("mass")
            fits = len(shape) == 1 and shape[0] <= size
            row = file.get_tensor("row") if fits else None
            row = row if row is None or torch.is_tensor(row) else torch.from_numpy(row)
            sent = None if row is None else SentRow(row, None if mass is None else float(mass))
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{path} is no row ({error}); ask its peer for the file again") from None
    if sent is None:
        raise InputError(
            f"{path} is no row, as its shape is {shape}, and a row of this run has at most {size:,} numbers"
        )
    if sent.digest != digest:
        raise InputError(f"{path} is not the row of its digest; ask its peer for the file again")
    return sent
