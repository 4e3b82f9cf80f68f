"""Whose key is whose: a roster that people made, or trust on first use.

Public keys travel over the broker. A broker that could replace them would stand in the middle of
every edge; what prevents it is that a peer's identity is checked against something that did not
come from the broker. A roster is a TOML file:

    [peers]
    ada = "ed25519:BASE64"

    [former]                                  # keys that a peer has rotated from, oldest first
    ada = ["ed25519:BASE64"]

    [revoked]
    "ed25519:BASE64" = "lost laptop, 2030-01-01"

Its digest belongs into the ``run`` of :func:`p2pfl.identity.edge_secret`, after the run's name, so
that peers with different rosters share no secret.
"""

import base64
import binascii
import hashlib
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol, Self

import tomli_w

from p2pfl.errors import InputError, PeerError
from p2pfl.files import replace as replace_file
from p2pfl.identity.signing import Identity, fingerprint, usable, verify

_NAME = re.compile(r"[A-Za-z0-9_-]{1,22}")

_PREFIX = "ed25519:"

_ROTATION = "rotation"


class Trust(Protocol):
    """What decides whether a key is a peer's."""

    def check(self, peer: str, public: bytes) -> None:
        """Return if ``public`` is the identity of ``peer``; raise :class:`~p2pfl.errors.PeerError` if not."""
        ...


@dataclass(frozen=True)
class Roster:
    """The public keys of all peers, as people agreed on them.

    Parameters
    ----------
    peers
        The present key of each name, 32 bytes.
    former
        The keys that a peer has rotated from, oldest first. They are refused, and never come back.
    revoked
        The reason for each key that is never to be trusted again.

    Raises
    ------
    InputError
        A name is not 1 to 22 letters, digits, "_" or "-"; a key is not 32 bytes, weak, or listed
        twice; former keys belong to no peer; a reason is empty or longer than its line.

    Examples
    --------
    >>> from p2pfl.identity import SeededSource
    >>> ada, eve = (Identity.generate(SeededSource(7), peer=peer) for peer in ("ada", "eve"))
    >>> roster = Roster({"ada": ada.public})
    >>> roster.check("ada", ada.public)
    >>> roster.check("ada", eve.public)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    p2pfl.errors.PeerError: expected "ada" with the key 8b34 17d2 06e0 e8a9 81e0 faca 585c 9bb2, got ...
    """

    peers: Mapping[str, bytes]
    former: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    revoked: Mapping[bytes, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("peers", "former", "revoked"):  # copies that nobody can change
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        owners: dict[bytes, str] = {}
        for peer, key in self._keys():
            _check_name(peer)
            _check_key(key)
            if key in owners:
                raise InputError(
                    f'expected every key once, got {fingerprint(key)} for "{owners[key]}" and for "{peer}": '
                    "give each peer a key of its own"
                )
            owners[key] = peer
        for peer in self.former:
            if peer not in self.peers:
                raise InputError(f'expected former keys of peers, got some of "{peer}": give the peer a present key')
        for key, reason in self.revoked.items():
            _check_key(key)
            _check_reason(reason)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a roster file.

        Raises
        ------
        InputError
            The file cannot be read, is not TOML, or is no roster.
        """
        try:
            table = tomllib.loads(Path(path).read_text("utf-8"))
        except OSError as error:
            raise InputError(f"{path}: expected a roster that can be read, got: {error.strerror}: name one") from None
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: expected a roster as TOML, got a file that is not: {error}") from None
        try:
            return cls._of(table)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def write(self, path: str | Path) -> None:
        """Write the roster file as a whole or not at all; comments of an earlier one are lost.

        Raises
        ------
        StorageError
            The file cannot be written; what was there is untouched.
        """
        table: dict[str, Any] = {"peers": {peer: _text(key) for peer, key in sorted(self.peers.items())}}
        if any(self.former.values()):
            table["former"] = {peer: [*map(_text, keys)] for peer, keys in sorted(self.former.items()) if keys}
        if self.revoked:
            table["revoked"] = {_text(key): reason for key, reason in sorted(self.revoked.items())}
        replace_file(Path(path), tomli_w.dumps(table).encode())

    def check(self, peer: str, public: bytes) -> None:
        """Return if ``public`` is the present key of ``peer``.

        Raises
        ------
        PeerError
            The key is revoked or another than the roster's, or the roster does not know the peer.
        """
        if public in self.revoked:
            raise PeerError(
                f"expected a key that is not revoked, got {fingerprint(public)} from {_shown(peer)}, revoked for "
                f'"{self.revoked[public]}": give that peer a new identity and put it into the roster'
            )
        if peer not in self.peers:
            raise PeerError(
                f"expected a peer of the roster, got {_shown(peer)} with the key {fingerprint(public)}: "
                "add it once its owner has confirmed the key by another way than the broker"
            )
        if public != self.peers[peer]:
            old = ", from which it has rotated" if public in self.former.get(peer, ()) else ""
            raise PeerError(
                f'expected "{peer}" with the key {fingerprint(self.peers[peer])}, got {fingerprint(public)}{old}: '
                "ask its owner by another way than the broker which of them is right"
            )

    @property
    def digest(self) -> str:
        """SHA-256 of what the roster decides, as 64 hexadecimal digits.

        Rosters with the same present and revoked keys have the same digest: former keys and the
        wording of reasons do not count.

        Examples
        --------
        >>> Roster({}).digest[:16]
        '8117bcd0a2692e16'
        """
        lines = ["p2pfl/v1/roster"]
        lines += [f"peer {peer} {key.hex()}" for peer, key in sorted(self.peers.items())]
        lines += [f"revoked {key.hex()}" for key in sorted(self.revoked)]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def rotated(self, peer: str, new_public: bytes, statement: bytes) -> "Roster":
        """Return the roster in which ``peer`` has the key that its present one vouches for.

        Runs go on with the roster they began with; the digest is another now.

        Parameters
        ----------
        peer, new_public, statement
            As they were given to and came from :func:`rotation`.

        Raises
        ------
        PeerError
            The roster does not know the peer, its present key is revoked or has not signed this,
            or the new key is not new.
        """
        present = self.peers.get(peer)
        if present is None:
            raise PeerError(f"expected a peer of the roster, got {_shown(peer)}: add it before it rotates its key")
        self.check(peer, present)  # not revoked
        if not verify(present, _rotation(peer, present, new_public), statement, domain=_ROTATION):
            raise PeerError(
                f'expected the rotation of "{peer}" signed by its present key {fingerprint(present)}, got another '
                "signature: have its owner sign the new key with the present one, or edit the roster"
            )
        used = {*self.revoked, *(key for _, key in self._keys())}  # with an old key, an old rotation would hold again
        if not usable(new_public) or new_public in used:
            raise PeerError(
                f'expected "{peer}" to rotate to a new key, got {fingerprint(new_public)}, which is weak or was in '
                "use before: generate a new identity"
            )
        former = {**self.former, peer: (*self.former.get(peer, ()), present)}
        return replace(self, peers={**self.peers, peer: new_public}, former=former)

    def revoke(self, public: bytes, *, reason: str) -> "Roster":
        """Return the roster that refuses ``public`` from now on, whoever's it is.

        Keys that it was rotated to stay trusted. If a thief may have signed the rotation, revoke
        those as well: ``former`` tells them.

        Raises
        ------
        InputError
            The key is not 32 bytes or weak, or the reason is empty or longer than its line.
        """
        return replace(self, revoked={**self.revoked, public: reason})

    def _keys(self) -> Iterator[tuple[str, bytes]]:
        """Every name with each of its keys."""
        yield from self.peers.items()
        for peer, keys in self.former.items():
            for key in keys:
                yield peer, key

    @classmethod
    def _of(cls, table: dict[str, Any]) -> Self:
        """The roster that a file's tables describe."""
        for name, section in table.items():
            if name not in {"peers", "former", "revoked"} or not isinstance(section, dict):
                raise InputError(f"expected the sections peers, former and revoked, got {_shown(name)}: remove it")
        former = table.get("former", {})
        for peer, keys in former.items():
            if not isinstance(keys, list):
                raise InputError(f"expected a list of former keys of {_shown(peer)}, got {keys!a:.80}: put it into []")
        return cls(
            peers={peer: _key(text) for peer, text in table.get("peers", {}).items()},
            former={peer: tuple(map(_key, keys)) for peer, keys in former.items()},
            revoked={_key(text): reason for text, reason in table.get("revoked", {}).items()},
        )


class FirstUse:
    """Trust on first use: the key of whom was met first under a name is that name's from then on.

    It protects whoever met the right peer first; a broker that stands in the middle from the
    beginning goes unnoticed, so :meth:`news` is to be shown to people. Words alone are no meeting: a
    broker keeps those of peers that are long gone, and anybody can repeat them. Let it :meth:`remember`
    expected peers only, that have shown that they live.

    Parameters
    ----------
    seen
        What an earlier run remembered.

    Examples
    --------
    >>> from p2pfl.identity import SeededSource
    >>> ada = Identity.generate(SeededSource(7), peer="ada")
    >>> trust = FirstUse()
    >>> trust.check("ada", ada.public)
    >>> trust.remember("ada", ada.public)
    >>> trust.news("ada")  # doctest: +ELLIPSIS
    'TRUSTED ON FIRST USE: "ada" has the key 8b34 17d2 06e0 e8a9 81e0 faca 585c 9bb2; ...
    >>> trust.news("ada")
    ''
    """

    def __init__(self, seen: Mapping[str, bytes] | None = None) -> None:
        self.seen: dict[str, bytes] = dict(seen or {})
        """The key of each name."""
        self._told = set(self.seen)

    def check(self, peer: str, public: bytes) -> None:
        """Return if ``public`` is the key of ``peer``, or may be, as nobody was met under that name.

        Raises
        ------
        PeerError
            It is another, weak, or another peer's; or the name is none.
        """
        first = self.seen.get(peer)
        if first is not None and first != public:
            raise PeerError(
                f'expected "{peer}" with the key {fingerprint(first)} as before, got {fingerprint(public)}: '
                "somebody may stand in between; ask its owner by another way than the broker, and use a roster"
            )
        if first is not None:
            return
        if not _NAME.fullmatch(peer) or not usable(public) or public in self.seen.values():
            raise PeerError(
                f"expected a peer with a sound name and a key of its own, got {_shown(peer)} with the key "
                f"{fingerprint(public)}: exclude it"
            )

    def remember(self, peer: str, public: bytes) -> None:
        """Take it that the key of ``peer``, which was just met, is this one.

        Raises
        ------
        PeerError
            As :meth:`check`.
        """
        self.check(peer, public)
        self.seen[peer] = bytes(public)

    def news(self, peer: str) -> str:
        """What people should be told about ``peer``: a sentence the first time, then nothing."""
        if peer in self._told or peer not in self.seen:
            return ""
        self._told.add(peer)
        return (
            f'TRUSTED ON FIRST USE: "{peer}" has the key {fingerprint(self.seen[peer])}; compare it with what {peer} '
            "shows, because the broker could have put its own there, or use a roster."
        )


def rotation(old: Identity, new_public: bytes, *, peer: str) -> bytes:
    """Return the 64 bytes by which the present key of ``peer`` vouches for its next.

    Raises
    ------
    InputError
        The name or the new key is none.

    Examples
    --------
    >>> from p2pfl.identity import SeededSource
    >>> old, new = (Identity.generate(SeededSource(seed), peer="ada") for seed in (7, 8))
    >>> roster = Roster({"ada": old.public})
    >>> roster.rotated("ada", new.public, rotation(old, new.public, peer="ada")).check("ada", new.public)
    """
    _check_name(peer)
    _check_key(new_public)
    return old.sign(_rotation(peer, old.public, new_public), domain=_ROTATION)


def _rotation(peer: str, old_public: bytes, new_public: bytes) -> bytes:
    """What a rotation signs; the name has no zero byte, and the first key a fixed length."""
    return peer.encode() + b"\0" + old_public + new_public


def _text(key: bytes) -> str:
    return _PREFIX + base64.b64encode(key).decode()


def _key(text: object) -> bytes:
    """The key that a text stands for; each has one text only."""
    if isinstance(text, str) and text.startswith(_PREFIX):
        try:
            key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):  # ValueError: letters that are not ASCII
            pass
        else:
            if _text(key) == text:
                return key
    raise InputError(f'expected a key as "{_PREFIX}" and base64, got {text!a:.80}: copy it again')


def _check_name(peer: str) -> None:
    if not _NAME.fullmatch(peer):
        raise InputError(f'expected a name of 1 to 22 letters, digits, "_" or "-", got {_shown(peer)}: rename the peer')


def _check_key(key: bytes) -> None:
    if not usable(key):
        raise InputError(
            f"expected a public key of 32 bytes that is not weak, got {len(key)} bytes {key.hex():.64}: "
            "copy the key of the peer's identity again"
        )


def _check_reason(reason: object) -> None:
    if not isinstance(reason, str) or not reason or not reason.isprintable():
        raise InputError(f"expected the reason of a revocation as one line of text, got {reason!a:.80}: say why")


def _shown(name: str) -> str:
    """A name from outside, safe to print."""
    return f'"{name}"' if _NAME.fullmatch(name) else f"{name!a:.40}"
