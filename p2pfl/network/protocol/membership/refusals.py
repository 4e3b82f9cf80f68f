"""Reasons to refuse an announcement: a kind with fields, and the text of the error that ends a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from p2pfl.privacy.keys.signing import group_digits

SHOWN = 80
"""Largest number of characters of a neighbour's setting in a text."""

LISTED = 5
"""Largest number of settings in a text."""


def escape(version: str) -> str:
    r"""Return an announced version in ASCII without control characters, because whoever announces it chooses it.

    Examples
    --------
    >>> escape("0.2.0"), escape("1" + chr(10) + chr(27))
    ('0.2.0', '1\\n\\x1b')
    """
    return ascii(version)[1:-1]


@dataclass(frozen=True)
class OtherWireFormat:
    """The neighbour uses another version of the wire format.

    Attributes
    ----------
    peer
        Name of the neighbour.
    theirs, ours
        Versions.
    """

    kind: ClassVar[str] = "other_wire_format"
    peer: str
    theirs: int
    ours: int


@dataclass(frozen=True)
class OtherExperiment:
    """The neighbour runs another experiment.

    Attributes
    ----------
    peer
        Name of the neighbour.
    settings
        Key, its value and ours of each setting that differs, escaped and cut; ``None`` stands for the default.
    """

    kind: ClassVar[str] = "other_experiment"
    peer: str
    settings: tuple[tuple[str, str | None, str | None], ...]


@dataclass(frozen=True)
class NotSigned:
    """The neighbour has not signed the announcement.

    Attributes
    ----------
    peer
        Name of the neighbour.
    theirs, ours
        Releases of p2pfl; the neighbour's is escaped.
    """

    kind: ClassVar[str] = "not_signed"
    peer: str
    theirs: str
    ours: str


@dataclass(frozen=True)
class NotTrusted:
    """The key of the neighbour is not trusted.

    Attributes
    ----------
    peer
        Name of the neighbour.
    message
        Message of the error of the trust.
    """

    kind: ClassVar[str] = "not_trusted"
    peer: str
    message: str


@dataclass(frozen=True)
class NotReadable:
    """The announcement is not a valid message.

    Attributes
    ----------
    peer
        Name of the neighbour.
    message
        Message of the error.
    """

    kind: ClassVar[str] = "not_readable"
    peer: str
    message: str


Refusal = OtherWireFormat | OtherExperiment | NotSigned | NotTrusted | NotReadable


def text(refusal: Refusal) -> str:
    """Return a refusal as part of the message of an error.

    Examples
    --------
    >>> text(OtherWireFormat("bob", theirs=6, ours=7))
    '"bob" uses version 6 of the wire format, and this peer uses version 7; install one version of p2pfl everywhere'
    """
    match refusal:
        case OtherWireFormat():
            return (
                f'"{refusal.peer}" uses version {refusal.theirs} of the wire format, and this peer uses version '
                f"{refusal.ours}; install one version of p2pfl everywhere"
            )
        case OtherExperiment(peer, (("roster", theirs, ours),)):
            digests = f"{group_digits(theirs or '') or 'none'} there, {group_digits(ours or '') or 'none'} here"
            return f'"{peer}" has another roster (digest {digests}); give all peers the same roster file'
        case OtherExperiment():
            usual = "the default"
            listed = [
                f"{key} = {theirs or usual} there and {ours or usual} here" for key, theirs, ours in refusal.settings
            ]
            return f'"{refusal.peer}" runs another experiment ({", ".join(listed[:LISTED])}); use the same file'
        case NotSigned():
            releases = f" (it runs p2pfl {refusal.theirs or 'of an unknown version'}, this peer runs {refusal.ours})"
            other = releases if refusal.theirs != refusal.ours else ""
            return f'the announcement of "{refusal.peer}" is not signed by it{other}; check its experiment and its key'
        case NotTrusted():
            return refusal.message
        case NotReadable():
            return f'the announcement of "{refusal.peer}" cannot be read: {refusal.message}'


def differences(peer: str, *, theirs: Mapping[str, str], ours: Mapping[str, str]) -> OtherExperiment | None:
    """Return where the experiment of a neighbour differs; ``None`` if it does not.

    Examples
    --------
    >>> differences("bob", theirs={"rate": "0.2", "seed": "1"}, ours={"rate": "0.1", "seed": "1"})
    OtherExperiment(peer='bob', settings=(('rate', '0.2', '0.1'),))
    """
    keys = sorted(key for key in ours.keys() | theirs.keys() if ours.get(key) != theirs.get(key))
    settings = tuple((str(_shorten(key)), _shorten(theirs.get(key)), _shorten(ours.get(key))) for key in keys)
    return OtherExperiment(peer, settings) if settings else None


def _shorten(value: str | None) -> str | None:
    """Return text from the network so that it is short, on one line, and without control characters."""
    return None if value is None else escape(value[:SHOWN]) + ("..." if len(value) > SHOWN else "")
