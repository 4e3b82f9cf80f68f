"""Signatures in base64, for files in JSON or TOML that people pass on."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from p2pfl.core.errors import InputError
from p2pfl.privacy.keys.roster import parse_key
from p2pfl.privacy.keys.signing import Identity, verify


def canonical(value: Any) -> bytes:
    """Return the bytes of a JSON value that a signature or a digest covers, the same whatever the order of keys.

    Examples
    --------
    >>> canonical({"b": 1, "a": [2]})
    b'{"a":[2],"b":1}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def signed_fields(table: Mapping[str, Any]) -> bytes:
    """Return the bytes of a table that its signature covers: all fields of the file, also those of other versions.

    Parameters
    ----------
    table
        Values of JSON, as they stand in the file.

    Examples
    --------
    >>> signed_fields({"signature": "abc", "more": 1})
    b'{"more":1,"signature":""}'
    """
    return canonical({**table, "signature": ""})


def sign_text(identity: Identity, message: bytes, *, domain: str) -> str:
    """Return the signature of a message in base64.

    Parameters
    ----------
    identity
        Key pair that signs.
    message, domain
        As of :meth:`Identity.sign`.
    """
    return base64.b64encode(identity.sign(message, domain=domain)).decode()


def verify_text(key: str, message: bytes, signature: str, *, domain: str) -> bool:
    """Return whether the owner of a public key signed a message; false as well if a text is no key or no base64.

    Parameters
    ----------
    key
        Public key as :func:`key_text` writes it.
    message, domain
        As of :func:`verify`.
    signature
        Signature in base64.

    Examples
    --------
    >>> from p2pfl.privacy.keys import key_text
    >>> ada = Identity(bytes(range(32)))
    >>> signature = sign_text(ada, b"hello", domain="header")
    >>> verify_text(key_text(ada.public), b"hello", signature, domain="header")
    True
    >>> verify_text("é", b"hello", "é", domain="header")
    False
    """
    try:
        return verify(parse_key(key), message, base64.b64decode(signature, validate=True), domain=domain)
    except (InputError, ValueError):  # ValueError: letters that base64 does not have
        return False
