"""Digest of everything a run depends on: the resolved experiment, the files and code that it names, the release."""

from __future__ import annotations

import glob
import hashlib
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

import p2pfl
from p2pfl.experiment import Experiment, flat
from p2pfl.experiment.file.reading import PATHS
from p2pfl.results.repeating.own_code import named_modules, own_code

LENGTH = 20
"""Hexadecimal digits of a digest."""

ACCOUNT = "privacy.budget"
"""Key of the privacy account: each run adds charges to the file, and none of them changes what another run gives."""

PEER = "{peer}"
"""Part of a path that stands for the name of a peer."""


def digest(experiment: Experiment, **more: Any) -> str:
    """Return the digest of all that decides what a run gives, which names its directory.

    Files that the experiment names count by their content, and so do the modules of ``package.module:name`` with what
    these import from the same folder.

    Parameters
    ----------
    experiment
        The resolved experiment.
    more
        What else decides.

    Examples
    --------
    >>> from p2pfl.experiment import read
    >>> digest(read({"seed": 1})) == digest(read({"seed": 1})), digest(read({"seed": 1})) == digest(read({"seed": 2}))
    (True, False)
    """
    table = flat(experiment)
    table.pop(ACCOUNT, None)
    for key in PATHS:
        section, _, rest = key.partition(".options.")
        if rest and isinstance(options := table.get(f"{section}.options"), dict) and rest in options:
            table[f"{section}.options"] = options | {rest: _content(options[rest])}
        elif table.get(key) is not None:
            table[key] = _content(table[key])
    code = own_code(named_modules(table))
    whole = {"experiment": table, "modules": None if code is None else code.digest, "p2pfl": p2pfl.__version__, **more}
    text = json.dumps(whole, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:LENGTH]


def _content(value: Any) -> Any:
    """Return the digest of a file in place of its path; what is no file stays."""
    if isinstance(value, list | tuple):
        return [_content(each) for each in value]
    if isinstance(value, str) and PEER in value:
        pattern = "*".join(glob.escape(part) for part in value.split(PEER))
        return {path: _content(path) for path in sorted(glob.glob(pattern))}  # noqa: PTH207 (may be absolute)
    if isinstance(value, str) and Path(value).is_file():
        path = Path(value)
        status = path.stat()
        return _hashed(path, status.st_mtime_ns, status.st_size)
    return value


@lru_cache
def _hashed(path: Path, changed: int, size: int) -> str:
    """Return the digest of a file; a file is read again if it has changed since."""
    del changed, size  # they are a part of the key of the cache
    return hashlib.sha256(path.read_bytes()).hexdigest()
