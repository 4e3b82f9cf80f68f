""":class:`NewestModel`, the model that answers, replaced when a newer checkpoint appears."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from p2pfl.core.errors import InputError, P2PFLError
from p2pfl.plugins.serve.served_model import RequestError, ServedModel
from p2pfl.results.saved_models import SavedModels

LOOK_SECONDS = 1.0
"""Seconds between two looks at the file."""

MAX_FILE_BYTES = 1 << 33
"""Largest file that is read."""

SUFFIX = ".safetensors"

Version = tuple[Path, int, int, int]
"""Path, inode, time of change in nanoseconds, and size of a file."""


def find_model(place: Path, *, name: str | None = None) -> Path | None:
    """Return the file of the newest model; ``None`` if there is none yet.

    Parameters
    ----------
    place
        A model, a run directory, or a folder of run directories.
    name
        Peer; by default the only one of the run.

    Raises
    ------
    InputError
        The run has the models of several peers, there is no such folder, or a name is given for a file.
    """
    if place.suffix == SUFFIX:
        if name is not None:
            raise InputError(f"{place} is the model of one peer; leave out --name, or name the run directory")
        if not place.parent.is_dir():
            raise InputError(f"{place.parent} does not exist; name peers/NAME.safetensors of a run directory")
        return place if place.is_file() else None
    if not place.is_dir():
        raise InputError(f"{place} does not exist; name a model, a run directory, or a folder of run directories")
    if (place / "experiment.toml").is_file():
        return _model_of(place, name)
    runs = [(each.stat().st_mtime_ns, each.parent) for each in place.glob("*/experiment.toml")]
    return next((model for _, run in sorted(runs, reverse=True) if (model := _model_of(run, name)) is not None), None)


def _model_of(run: Path, name: str | None) -> Path | None:
    """Return the model of a run directory that is meant, if the run has it."""
    peers = list(SavedModels(run / "peers"))
    if name is None and len(peers) > 1:
        raise InputError(f"{run} has the models of {len(peers)} peers; choose one with --name, such as {peers[0]}")
    chosen = name or (peers[0] if peers else "")
    return run / "peers" / f"{chosen}{SUFFIX}" if chosen in peers else None


class NewestModel:
    """The newest model of a peer, loaded once for each checkpoint.

    Requests take :attr:`current` once and keep it, so that none sees two models.

    Parameters
    ----------
    place, name
        As for :func:`find_model`.
    now
        Clock in UTC.
    notify
        Called with a sentence for people.
    trusted
        ``package.module:Class`` of a model of the user's own.

    Attributes
    ----------
    current
        The model; ``None`` as long as no peer has written one.
    changed
        Set whenever the model was replaced.
    refusal
        Why the newest file cannot be used; empty if it can.
    """

    def __init__(
        self,
        place: Path,
        *,
        name: str | None = None,
        now: Callable[[], datetime],
        notify: Callable[[str], None],
        trusted: str | None = None,
    ) -> None:
        self.place, self.name = place, name
        self.current: ServedModel | None = None
        self.changed = asyncio.Event()
        self._now, self._notify, self._trusted = now, notify, trusted
        self._seen: Version | None = None
        self.refusal = ""

    def take(self) -> ServedModel:
        """Return the model for one request.

        Raises
        ------
        RequestError
            There is none yet.
        """
        if self.current is None:
            raise RequestError("no peer has written a model yet; ask again after its first round", 503)
        return self.current

    async def follow(self) -> None:
        """Look for newer models until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Load the newest model if it is not the present one; a file that cannot be used changes nothing."""
        try:
            model = await asyncio.to_thread(self._load)
        except (P2PFLError, OSError) as error:
            self._refuse(str(error))
        except Exception as error:  # noqa: BLE001 - whatever a damaged file does to the libraries, the service goes on
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            self._refuse(f"{self.place} cannot be used ({reason}); report it with the file if the file is sound")
        else:
            if model is not None:
                if self.current is not None and not model.like(self.current):
                    self._notify("the newest model has other columns, classes or another task than the one before it")
                self.current, self.refusal = model, ""
                self.changed.set()

    def _refuse(self, reason: str) -> None:
        """Say once why the newest file is not used."""
        if reason != self.refusal:
            kept = "the model before it answers on" if self.current else "no model answers yet"
            self._notify(f"{reason}; {kept}")
        self.refusal = reason

    def _load(self) -> ServedModel | None:
        """Return the newest model; ``None`` if it is the present one or was refused before."""
        path = find_model(self.place, name=self.name)
        if path is None or _version(path) == self._seen:
            return None
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            if before.st_size > MAX_FILE_BYTES:
                raise InputError(f"{path} has {before.st_size:,} bytes, more than {MAX_FILE_BYTES:,}; name a model")
            data = file.read(before.st_size)
            after = os.fstat(file.fileno())
        if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
            return None  # somebody is writing into it: look again
        self._seen = path, before.st_ino, before.st_mtime_ns, before.st_size
        return ServedModel.read(path, data, now=self._now(), trusted=self._trusted)


def _version(path: Path) -> Version:
    about = path.stat()
    return path, about.st_ino, about.st_mtime_ns, about.st_size
