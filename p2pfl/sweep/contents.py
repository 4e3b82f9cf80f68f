"""Digest of everything a run depends on: the resolved experiment, the files and code that it names, the release."""

from __future__ import annotations

import glob
import hashlib
import importlib.util
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import p2pfl
from p2pfl.experiment import Experiment, flat
from p2pfl.experiment.file.reading import PATHS

LENGTH = 20
"""Hexadecimal digits of a digest."""

ACCOUNT = "privacy.budget"
"""Key of the privacy account: each run adds charges to the file, and none of them changes what another run gives."""

PEER = "{peer}"
"""Part of a path that stands for the name of a peer."""

OWN = re.compile(r"([A-Za-z_][\w.]*):[A-Za-z_]\w*")
"""A ``package.module:name``."""


def digest(experiment: Experiment, **more: Any) -> str:
    """Return the digest of all that decides what a run gives, which names its directory.

    Files that the experiment names count by their content, and so do the modules of ``package.module:name``, but not
    what these import.

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
    modules = {name: _source(name) for name in sorted(_modules(table))}
    whole = {"experiment": table, "modules": modules, "p2pfl": p2pfl.__version__, **more}
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


def _modules(value: Any) -> Iterator[str]:
    if isinstance(value, str) and (match := OWN.fullmatch(value)):
        yield match[1]
    elif isinstance(value, dict):
        for each in value.values():
            yield from _modules(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _modules(each)


def _source(module: str) -> str | None:
    """Return the digest of a module's file; ``None`` if there is no such module, which the run itself reports."""
    try:
        found = importlib.util.find_spec(module)
    except (ImportError, ValueError):
        return None
    return None if found is None or found.origin is None else str(_content(found.origin))
