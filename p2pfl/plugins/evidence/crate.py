"""A checked run as a Research Object Crate: a folder that other tools read.

References
----------
RO-Crate Metadata Specification 1.1, https://w3id.org/ro/crate/1.1; S. Soiland-Reyes et al., "Packaging research
artefacts with RO-Crate", Data Science 5, 2022.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

import p2pfl
from p2pfl.core.errors import InputError, StorageError
from p2pfl.plugins.evidence.certificate import file_digest
from p2pfl.plugins.evidence.recorded_chain import PeerEvidence
from p2pfl.plugins.evidence.verification import Verification

METADATA = "ro-crate-metadata.json"
CONTEXT = "https://w3id.org/ro/crate/1.1/context"
PROFILE = "https://w3id.org/ro/crate/1.1"
RESULT = "verification.json"
RECORDS = ("experiment.toml", "provenance.json", "summary.json", "forgotten.json")
"""Files beside the evidence that a crate contains, where they exist; none has a model or a datum."""

TYPES = {".toml": "application/toml", ".json": "application/json", ".jsonl": "application/jsonl"}


def write_crate(folder: Path, chains: Sequence[PeerEvidence], result: Verification) -> None:
    """Write the evidence, the settings and the result of the check into a new folder, with a description of each file.

    Parameters
    ----------
    folder
        A folder that does not exist yet, or is empty.
    chains, result
        Evidence that was checked, and the result.

    Raises
    ------
    InputError
        The folder is not empty.
    StorageError
        A file cannot be written.
    """
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty; name a new folder")
    copied = {file.name: file for own in chains for file in own.files}
    for own in chains:
        for name in RECORDS:
            if (own.folder / name).is_file():
                copied.setdefault(name, own.folder / name)
    if links := [path for path in copied.values() if path.is_symlink()]:
        raise InputError(f"{links[0]} is a link, which no run directory has; remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, source in copied.items():
            shutil.copyfile(source, folder / name)
        (folder / RESULT).write_bytes(msgspec.json.format(msgspec.json.encode(result)) + b"\n")
        graph = _graph(folder, sorted([*copied, RESULT]), chains)
        (folder / METADATA).write_text(json.dumps({"@context": CONTEXT, "@graph": graph}, indent=2) + "\n")
    except OSError as error:
        raise StorageError(f"{folder} cannot be written ({error.strerror}); check its permissions") from None


def _graph(folder: Path, names: Sequence[str], chains: Sequence[PeerEvidence]) -> list[dict[str, Any]]:
    """Return the description of a crate and of its files."""
    swarm = chains[0].beginnings[0].swarm if chains and chains[0].beginnings else "run"
    peers = ", ".join(own.peer for own in chains)
    root = {
        "@id": "./",
        "@type": "Dataset",
        "name": f"Evidence of {swarm}",
        "description": f"What the peers {peers} sent, received and computed, signed by each, and its verification.",
        "hasPart": [{"@id": name} for name in names],
        "conformsTo": {"@id": PROFILE},
        "instrument": {"@id": "#p2pfl"},
    }
    descriptor = {
        "@id": METADATA,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": PROFILE},
    }
    software = {"@id": "#p2pfl", "@type": "SoftwareApplication", "name": "p2pfl", "softwareVersion": p2pfl.__version__}
    return [descriptor, root, software, *(_file(folder / name) for name in names)]


def _file(path: Path) -> dict[str, Any]:
    return {
        "@id": path.name,
        "@type": "File",
        "name": path.name,
        "contentSize": str(path.stat().st_size),
        "encodingFormat": TYPES.get(path.suffix, "application/octet-stream"),
        "sha256": file_digest(path),
    }
