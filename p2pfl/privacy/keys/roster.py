"""Trust in public keys: a roster that people make, or trust on first use.

Public keys travel over the broker. A broker that replaces them becomes a man in the middle of every edge. To prevent
this, peers check identities against information that does not come from the broker. A roster is a TOML file:

    operator = "ed25519:BASE64"               # may change the running swarm; left out where nobody may

    [peers]
    ada = "ed25519:BASE64"

    [former]                                  # keys that a peer has rotated from, oldest first
    ada = ["ed25519:BASE64"]

    [revoked]
    "ed25519:BASE64" = "lost laptop, 2030-01-01"

Its digest belongs into the ``run`` of :func:`p2pfl.privacy.keys.edge_secret`, after the name of the run, so
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

from p2pfl.core.errors import InputError, PeerError
from p2pfl.core.files import replace as replace_file
from p2pfl.privacy.keys.signing import Identity, fingerprint, group_digits, usable, verify

NAME = re.compile(r"[A-Za-z0-9_-]{1,22}")
"""Form of the name of a peer or an observer."""

_PREFIX = "ed25519:"

_ROTATION = "rotation"


class Trust(Protocol):
    """Policy that decides whether a key belongs to a peer."""

    def check(self, peer: str, public: bytes) -> None:
        """Return if ``public`` is the identity of ``peer``; raise :class:`~p2pfl.core.errors.PeerError` if not."""
        ...


@dataclass(frozen=True)
class Roster:
    """Public keys of all peers, as people agreed on them.

    Parameters
    ----------
    peers
        Present key of each name, 32 bytes.
    former
        Keys that a peer has rotated from, oldest first. They are refused, and never valid again.
    revoked
        Reason for each key that must never be trusted again.
    operator
        Key that signs changes of the running swarm (:mod:`p2pfl.experiment.swarm_change`); empty if nobody may change
        it.

    Raises
    ------
    InputError
        A name is not 1 to 22 letters, digits, "_" or "-"; a key is not 32 bytes, is weak, or is listed
        twice; former keys belong to no peer; a reason is empty or longer than one line.

    Examples
    --------
    >>> from p2pfl.privacy.keys import SeededSource
    >>> ada, eve = (Identity.generate(SeededSource(7), peer=peer) for peer in ("ada", "eve"))
    >>> roster = Roster({"ada": ada.public})
    >>> roster.check("ada", ada.public)
    >>> roster.check("ada", eve.public)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    p2pfl.core.errors.PeerError: "ada" presents the key ... instead of 8b34 17d2 06e0 e8a9 81e0 faca 585c 9bb2; ...
    """

    peers: Mapping[str, bytes]
    former: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict)
    revoked: Mapping[bytes, str] = field(default_factory=dict)
    operator: bytes = b""

    def __post_init__(self) -> None:
        for name in ("peers", "former", "revoked"):  # copies that callers cannot change
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))
        owners: dict[bytes, str] = {}
        for peer, key in self._keys():
            _check_name(peer)
            _check_key(key)
            if key in owners:
                raise InputError(
                    f'{fingerprint(key)} is the key of both "{owners[key]}" and "{peer}"; give each peer its own key'
                )
            owners[key] = peer
        if self.operator:
            _check_key(self.operator)
            if self.operator in owners:
                raise InputError(
                    f'the operator has the key of "{owners[self.operator]}"; give the operator a key of their own'
                )
        for peer in self.former:
            if peer not in self.peers:
                raise InputError(f'"{peer}" has former keys but no present one; give it a present key')
        for key, reason in self.revoked.items():
            _check_key(key)
            _check_reason(reason)

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """Read a roster file.

        Raises
        ------
        InputError
            The file cannot be read, is not TOML, or is not a roster.
        """
        try:
            return cls.parse(Path(path).read_text("utf-8"))
        except OSError as error:
            raise InputError(f"{path}: the roster cannot be read ({error.strerror}); check the path") from None
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: the roster is not TOML ({error}); fix the file") from None
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the content of a roster file.

        Raises
        ------
        InputError
            The text is not TOML, or is not a roster.
        """
        try:
            table = tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            raise InputError(f"the roster is not TOML ({error}); fix the file") from None
        return cls._of(table)

    def write(self, path: str | Path) -> None:
        """Write the roster file as a whole or not at all, without the comments of an earlier file.

        Raises
        ------
        StorageError
            The file cannot be written; an earlier file stays unchanged.
        """
        replace_file(Path(path), self.text.encode())

    @property
    def text(self) -> str:
        """Content of the roster file."""
        table: dict[str, Any] = {"operator": key_text(self.operator)} if self.operator else {}
        table |= {"peers": {peer: key_text(key) for peer, key in sorted(self.peers.items())}}
        if any(self.former.values()):
            table["former"] = {peer: [*map(key_text, keys)] for peer, keys in sorted(self.former.items()) if keys}
        if self.revoked:
            table["revoked"] = {key_text(key): reason for key, reason in sorted(self.revoked.items())}
        return tomli_w.dumps(table)

    def check(self, peer: str, public: bytes) -> None:
        """Return if ``public`` is the present key of ``peer``.

        Raises
        ------
        PeerError
            The key is revoked or differs from the roster's, or the roster does not contain the peer.
        """
        if public in self.revoked:
            raise PeerError(
                f'{_shown(peer)} presents the key {fingerprint(public)}, revoked for "{self.revoked[public]}"; '
                "give that peer a new identity and put it into the roster"
            )
        if peer not in self.peers:
            raise PeerError(
                f"the roster does not contain {_shown(peer)}, who presents the key {fingerprint(public)}; add "
                "the key once its owner has confirmed it out of band"
            )
        if public != self.peers[peer]:
            old = ", from which it has rotated," if public in self.former.get(peer, ()) else ""
            raise PeerError(
                f'"{peer}" presents the key {fingerprint(public)}{old} instead of '
                f"{fingerprint(self.peers[peer])}; ask its owner out of band which of them is right"
            )

    @property
    def digest(self) -> str:
        """SHA-256 of the present and revoked keys, and of that of the operator, as 64 hexadecimal digits.

        Rosters with the same present and revoked keys have the same digest, whatever their former keys and reasons.

        Examples
        --------
        >>> Roster({}).digest[:16]
        '8117bcd0a2692e16'
        """
        lines = ["p2pfl/v1/roster"]
        lines += [f"peer {peer} {key.hex()}" for peer, key in sorted(self.peers.items())]
        lines += [f"revoked {key.hex()}" for key in sorted(self.revoked)]
        lines += [f"operator {self.operator.hex()}"] if self.operator else []
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """The digest in a form for people to compare, the same in all commands.

        Examples
        --------
        >>> Roster({}).fingerprint
        '8117 bcd0 a269 2e16 12fe 3f12 4c1b b1db'
        """
        return group_digits(self.digest)

    def rotated(self, peer: str, new_public: bytes, statement: bytes) -> "Roster":
        """Return the roster in which ``peer`` has the new key that its present one signed.

        Runs continue with the roster that they started with; the digest changes.

        Parameters
        ----------
        peer, new_public, statement
            Arguments and result of :func:`rotation`.

        Raises
        ------
        PeerError
            The roster does not contain the peer, its present key is revoked or has not signed the statement,
            or the new key is not new.
        """
        present = self.peers.get(peer)
        if present is None:
            raise PeerError(f"the roster does not contain {_shown(peer)}; add it before it rotates its key")
        self.check(peer, present)  # not revoked
        if not verify(present, _rotation(peer, present, new_public), statement, domain=_ROTATION):
            raise PeerError(
                f'the rotation of "{peer}" is not signed by its present key {fingerprint(present)}; have its '
                "owner sign the new key with the present one, or edit the roster"
            )
        used = {
            *self.revoked,
            *(key for _, key in self._keys()),
        }  # an old key would make an old rotation valid again
        if not usable(new_public) or new_public in used:
            raise PeerError(
                f'"{peer}" cannot rotate to {fingerprint(new_public)}, which is weak or was in use before; '
                "generate a new identity"
            )
        former = {**self.former, peer: (*self.former.get(peer, ()), present)}
        return replace(self, peers={**self.peers, peer: new_public}, former=former)

    def revoke(self, public: bytes, *, reason: str) -> "Roster":
        """Return the roster that refuses ``public`` from now on, for any peer.

        Keys that it was rotated to stay trusted. If a thief may have signed the rotation, revoke those as well;
        ``former`` lists them.

        Raises
        ------
        InputError
            The key is not 32 bytes or is weak, or the reason is empty or longer than one line.
        """
        return replace(self, revoked={**self.revoked, public: reason})

    def _keys(self) -> Iterator[tuple[str, bytes]]:
        """Yield every name with each of its keys."""
        yield from self.peers.items()
        for peer, keys in self.former.items():
            for key in keys:
                yield peer, key

    @classmethod
    def _of(cls, table: dict[str, Any]) -> Self:
        """Return the roster that the tables of a file describe."""
        operator = parse_key(table["operator"]) if "operator" in table else b""
        for name, section in table.items():
            if name == "operator":
                continue
            if name not in {"peers", "former", "revoked"} or not isinstance(section, dict):
                text = "is not a section of a roster (peers, former, revoked); keys of peers are below the line [peers]"
                raise InputError(f"{_shown(name)} {text}")
        former = table.get("former", {})
        for peer, keys in former.items():
            if not isinstance(keys, list):
                raise InputError(f"the former keys of {_shown(peer)} are {keys!a:.80}, not a list; put them into []")
        return cls(
            peers={peer: parse_key(text) for peer, text in table.get("peers", {}).items()},
            former={peer: tuple(map(parse_key, keys)) for peer, keys in former.items()},
            revoked={parse_key(text): reason for text, reason in table.get("revoked", {}).items()},
            operator=operator,
        )


class FirstUse:
    """Trust on first use: the first key seen under a name belongs to that name from then on.

    It protects peers that met the right peer first. It does not detect a broker that is a man in the middle from the
    beginning, so show :meth:`news` to people. A message alone proves nothing: a broker keeps messages of peers that are
    long gone, and anyone can repeat them. Only :meth:`remember` expected peers that have proved that they are present.

    Parameters
    ----------
    seen
        Keys that an earlier run remembered.

    Examples
    --------
    >>> from p2pfl.privacy.keys import SeededSource
    >>> ada = Identity.generate(SeededSource(7), peer="ada")
    >>> trust = FirstUse()
    >>> trust.check("ada", ada.public)
    >>> trust.remember("ada", ada.public)
    >>> trust.news("ada") == ada.public
    True
    >>> trust.news("ada") is None
    True
    """

    def __init__(self, seen: Mapping[str, bytes] | None = None) -> None:
        self.seen: dict[str, bytes] = dict(seen or {})
        """Key of each name."""
        self._reported = set(self.seen)

    def check(self, peer: str, public: bytes) -> None:
        """Return if ``public`` is the key of ``peer``, or can be, as no key of that name is known.

        Raises
        ------
        PeerError
            The key differs, is weak, or belongs to another peer; or the name is invalid.
        """
        first = self.seen.get(peer)
        if first is not None and first != public:
            raise PeerError(
                f'"{peer}" presents the key {fingerprint(public)} instead of {fingerprint(first)} as before, '
                "which may be a man in the middle; ask its owner out of band, and use a roster"
            )
        if first is not None:
            return
        if not NAME.fullmatch(peer) or not usable(public) or public in self.seen.values():
            raise PeerError(
                f"{_shown(peer)} presents the key {fingerprint(public)}, but its name is invalid, or the key is "
                "weak or belongs to another peer; exclude it"
            )

    def remember(self, peer: str, public: bytes) -> None:
        """Remember the key of ``peer``, which has just proved its presence.

        Raises
        ------
        PeerError
            :meth:`check` refuses the key.
        """
        self.check(peer, public)
        self.seen[peer] = bytes(public)

    def news(self, peer: str) -> bytes | None:
        """Return the key of ``peer`` the first time, so that people can be asked to compare it; then ``None``."""
        if peer in self._reported or peer not in self.seen:
            return None
        self._reported.add(peer)
        return self.seen[peer]


def rotation(old: Identity, new_public: bytes, *, peer: str) -> bytes:
    """Return the 64 bytes by which the present key of ``peer`` signs its next one.

    Raises
    ------
    InputError
        The name or the new key is invalid.

    Examples
    --------
    >>> from p2pfl.privacy.keys import SeededSource
    >>> old, new = (Identity.generate(SeededSource(seed), peer="ada") for seed in (7, 8))
    >>> roster = Roster({"ada": old.public})
    >>> roster.rotated("ada", new.public, rotation(old, new.public, peer="ada")).check("ada", new.public)
    """
    _check_name(peer)
    _check_key(new_public)
    return old.sign(_rotation(peer, old.public, new_public), domain=_ROTATION)


def _rotation(peer: str, old_public: bytes, new_public: bytes) -> bytes:
    """Return the message that a rotation signs; the name has no zero byte, and the first key a fixed length."""
    return peer.encode() + b"\0" + old_public + new_public


def key_text(key: bytes) -> str:
    """Return a public key as rosters and policies write it."""
    return _PREFIX + base64.b64encode(key).decode()


def parse_key(text: object) -> bytes:
    """Return the public key that a text encodes; each key has one text only.

    Raises
    ------
    InputError
        The text is no key.

    Examples
    --------
    >>> parse_key(key_text(bytes(32))) == bytes(32)
    True
    """
    if isinstance(text, str) and text.startswith(_PREFIX):
        try:
            key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        except (binascii.Error, ValueError):  # ValueError: non-ASCII letters
            pass
        else:
            if key_text(key) == text:
                return key
    raise InputError(f'{text!a:.80} is not a key of the form "{_PREFIX}" and base64; copy it again')


def _check_name(peer: str) -> None:
    if not NAME.fullmatch(peer):
        raise InputError(
            f'{_shown(peer)} is not a valid name; rename the peer with 1 to 22 letters, digits, "_" or "-"'
        )


def _check_key(key: bytes) -> None:
    if not usable(key):
        raise InputError(
            f"{key.hex():.64} with {len(key)} bytes is not a public key of 32 bytes, or is weak; copy the key "
            "of the peer's identity again"
        )


def _check_reason(reason: object) -> None:
    if not isinstance(reason, str) or not reason or not reason.isprintable():
        raise InputError(f"the reason of a revocation is {reason!a:.80}, not one line of text; state a reason")


def _shown(name: str) -> str:
    """Return an untrusted name in a form that is safe to print."""
    return f'"{name}"' if NAME.fullmatch(name) else f"{name!a:.40}"
