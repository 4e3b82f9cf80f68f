"""Fields of a peer's records and notices that observers receive: an allow-list for each level.

``health`` reports where a peer is, for which neighbours it waits, and what went wrong; only its times and sizes depend
on data. ``scores`` adds losses, scores and the privacy spent. No level contains parameters, updates, norms, paths or
messages of errors. A field that no table lists does not leave the peer.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal

import msgspec

from p2pfl.core.errors import DecodeError
from p2pfl.core.texts import printable
from p2pfl.results.notices.kinds import (
    Notice,
    PeerFailed,
    PeerFinished,
    PhaseBegan,
    PresenceChanged,
    WaitBegan,
    WaitEnded,
    kind_of,
    kinds,
)
from p2pfl.results.records import Record

Level = Literal["health", "scores"]
"""Level at which an owner shares the state of a peer."""

RECORD_FIELDS = "record"
"""Kind of a record among the entries."""

HEALTH_FIELDS: Mapping[str, tuple[str, ...]] = {
    RECORD_FIELDS: (
        "round",
        "bytes_out",
        "bytes_in",
        "seconds_training",
        "seconds_waiting",
        "received",
        "missed",
        "awaited",
    ),
    "phase_began": ("phase", "round"),
    "wait_began": ("round", "neighbours", "connected"),
    "wait_ended": (),
    "presence_changed": ("came", "left"),
    "peer_finished": (),
    "peer_failed": ("error", "status"),
    "joins_late": ("round", "rounds", "again"),
    "awaits_return": ("round", "seconds"),
    "releases_ended": ("rounds", "lost"),
    "learning_stopped": ("reason",),
    "version_differs": ("neighbour", "theirs", "ours"),
    "peer_excluded": ("neighbour", "key", "signed", "round", "step"),
    "models_refused": ("neighbour", "round"),
    "acceptance_withheld": ("neighbour", "round", "times"),
    "neighbours_missing": ("absent", "gone"),
    "broker_unavailable": ("seconds",),
    "clock_behind": ("seconds", "key"),
    "restart_unsettled": ("neighbours",),
}
"""Fields of each kind of entry at the level ``health``; an entry of another kind is not shared."""

SCORE_FIELDS: Mapping[str, tuple[str, ...]] = {
    **HEALTH_FIELDS,
    RECORD_FIELDS: (*HEALTH_FIELDS[RECORD_FIELDS], "scores", "training_loss", "privacy_spent"),
    "peer_finished": ("scores",),
    "loss_rose": ("round", "before", "now"),
    "budget_exceeded": ("spent", "epsilon"),
}
"""Fields of each kind of entry at the level ``scores``."""

FIELDS: Mapping[Level, Mapping[str, tuple[str, ...]]] = {"health": HEALTH_FIELDS, "scores": SCORE_FIELDS}
"""Fields of each kind of entry by level."""

MAX_NAMES = 16
"""Largest number of names, or of scores, in an entry."""

RECENT_NOTICES = 8
"""Number of last warnings and alarms that a new observer is sent."""

ANY_FLOAT_FIELDS = ("training_loss", "privacy_spent")
"""Fields of which any float is sound: a run that diverges reports losses that are no numbers."""

MAX_COUNT = 2**53
"""Largest count or duration of an entry."""

WITHHELD_FIELDS: Mapping[str, Mapping[str, Any]] = {
    RECORD_FIELDS: {"scores": {}, "training_loss": None, "distance": math.nan},
    "peer_finished": {"scores": {}},
    "peer_failed": {"message": "the message stays on its device"},
    "learning_stopped": {"message": "the message stays on its device"},
    "neighbours_missing": {"message": "the message stays on its device"},
    "broker_unavailable": {"message": "the message stays on its device"},
}
"""Values of required fields that were not shared, by kind."""

Entry = Record | Notice

_CLASSES: Mapping[str, type[Entry]] = {RECORD_FIELDS: Record, **kinds()}
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(dict[str, Any])


def encode_entry(entry: Entry, *, level: Level) -> bytes | None:
    """Return the bytes of an entry for observers; ``None`` if its kind is not shared.

    Examples
    --------
    >>> decode_entry(encode_entry(PeerFinished(peer="ada", scores={"loss": 0.5}), level="health"), peer="ada", names=())
    PeerFinished(schema=1, time=None, peer='ada', scores={})
    """
    kind = RECORD_FIELDS if isinstance(entry, Record) else kind_of(type(entry).__name__)
    fields = FIELDS[level].get(kind)
    if fields is None:
        return None
    return _encoder.encode({"kind": kind, **{name: _bound(getattr(entry, name)) for name in fields}})


def decode_entry(data: bytes, *, peer: str, names: Collection[str]) -> Entry:
    """Return the entry in bytes from a peer, which need not be valid.

    Parameters
    ----------
    data
        The bytes.
    peer
        Peer that sent them, which becomes the peer of the entry.
    names
        Names of all peers; others are left out.

    Raises
    ------
    DecodeError
        The bytes are no entry.
    """
    try:
        table = _decoder.decode(data)
        kind = table.pop("kind", None)
        allowed = SCORE_FIELDS[kind]
        scores = {
            name: _sanitise(value, names, any_float=name in ANY_FLOAT_FIELDS)
            for name, value in table.items()
            if name in allowed
        }
        entry: Entry = msgspec.convert({**WITHHELD_FIELDS.get(kind, {}), **scores, "peer": peer}, _CLASSES[kind])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, OverflowError, ValueError, KeyError, TypeError):
        raise DecodeError(f"the bytes from {peer} are no entry of telemetry") from None
    return entry


class Recent:
    """Recent activity of a peer: its present state for a new observer, and what is new for the others.

    Records of rounds that end faster than somebody takes them are merged to one.

    Parameters
    ----------
    peer
        Name of the peer.
    """

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._present: set[str] = set()
        self._lost: set[str] = set()
        self._state: dict[type[Entry], tuple[float, Entry]] = {}
        self._warnings: deque[tuple[float, Entry]] = deque(maxlen=RECENT_NOTICES)
        self._news: deque[tuple[float, Entry]] = deque(maxlen=RECENT_NOTICES * MAX_NAMES)

    def take(self, at: float, entry: Entry) -> None:
        """Take an entry of the peer, with its time in seconds."""
        merged = entry
        match entry:
            case Record():
                self._state.pop(WaitBegan, None)
                merged = self._merge(entry)
                self._state[Record] = at, entry
            case WaitEnded():
                self._state.pop(WaitBegan, None)
            case PresenceChanged():
                self._present = (self._present | {*entry.came}) - {*entry.left}
                self._lost = (self._lost | {*entry.left}) - {*entry.came}
            case PhaseBegan() | WaitBegan() | PeerFinished() | PeerFailed():
                self._state[type(entry)] = at, entry
            case _ if entry.severity != "info":
                self._warnings.append((at, entry))
        for each in _split(merged):
            self._news.append((at, each))

    def past(self, now: float) -> list[tuple[float, Entry]]:
        """Return entries that lead to the present state, with their times, in order."""
        there, lost = tuple(sorted(self._present)), tuple(sorted(self._lost))
        met = [(now, each) for each in _split(PresenceChanged(peer=self._peer, came=there, left=lost))]
        order = {kind: number for number, kind in enumerate((PhaseBegan, Record, WaitBegan, PeerFinished, PeerFailed))}
        state = sorted(self._state.items(), key=lambda item: (item[1][0], order.get(item[0], 0)))
        return [*sorted([*self._warnings, *(item for _, item in state)], key=lambda item: item[0]), *met]

    def news(self) -> list[tuple[float, Entry]]:
        """Return the entries since the last call."""
        entries, self._news = [*self._news], deque(maxlen=self._news.maxlen)
        return entries

    def _merge(self, record: Record) -> Record:
        """Return a record with the counts of one that nobody has taken, in its place."""
        for index, (_, earlier) in enumerate(self._news):
            if isinstance(earlier, Record):
                del self._news[index]
                counts = {"received": earlier.received + record.received, "missed": [*earlier.missed, *record.missed]}
                return msgspec.structs.replace(record, **counts)
        return record


def _split(entry: Entry) -> Iterator[Entry]:
    """Yield notices with few names each of one with many."""
    if not isinstance(entry, PresenceChanged):
        yield entry
        return
    for start in range(0, max(len(entry.came), len(entry.left)), MAX_NAMES):
        part = slice(start, start + MAX_NAMES)
        yield msgspec.structs.replace(entry, came=entry.came[part], left=entry.left[part])


def _bound(value: Any) -> Any:
    """Return a value with as many names or scores as an entry may have, and short texts."""
    match value:
        case list() | tuple():
            return [_bound(each) for each in value[:MAX_NAMES]]
        case dict():
            return {str(name)[:40]: value[name] for name in [*value][:MAX_NAMES]}
        case str():
            return value[:80]
        case _:
            return value


def _sanitise(value: Any, names: Collection[str], *, any_float: bool) -> Any:
    """Return a value of a peer with sound numbers, text that is safe to show, and no names of peers that do not exist.

    Raises
    ------
    ValueError
        A number is negative or too large.
    """
    match value:
        case list():
            return [each for each in value[:MAX_NAMES] if each in names]
        case dict():
            return {printable(str(name)[:40]): _number(value[name]) for name in [*value][:MAX_NAMES]}
        case str():
            return printable(value[:80])
        case _:
            return _number(value) if any_float else _sound(value)


def _sound(value: Any) -> Any:
    """Return a count or a duration; it cannot be negative."""
    if isinstance(value, int | float) and not 0 <= value <= MAX_COUNT:
        raise ValueError(f"{value} is not between 0 and {MAX_COUNT}")
    return value


def _number(value: Any) -> Any:
    """Return a score, which may be any float, or a count."""
    return value if isinstance(value, float) else _sound(value)
