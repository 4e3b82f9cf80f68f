"""Transports by the scheme of a broker's URL."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from p2pfl.core.errors import BrokerError
from p2pfl.core.registry import find_entry_points, load
from p2pfl.network.transport.channel import Transport
from p2pfl.network.transport.memory import MemoryTransport
from p2pfl.network.transport.topic_prefix import below

GROUP = "p2pfl.transports"
"""The group of entry points in which an installed package registers transports."""


@dataclass(frozen=True, kw_only=True)
class Access:
    """Settings that a transport may use to reach a broker.

    Parameters
    ----------
    user, password
        Credentials for the broker, if it asks.
    ca, certificate, key
        Files for TLS.
    version
        Of MQTT.
    qos
        Quality of service of MQTT, 0 or 1.
    limit
        Bytes of the largest message.
    lowered
        Function that is called with the reason, as a sentence, when the transport goes on at quality of service 0 by
        itself.
    prefix
        Prefix of all topics, which ends in a slash; :func:`opened` adds it, whatever the scheme.
    """

    user: str | None = None
    password: str | None = None
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    version: int = 4
    qos: int = 1
    limit: int | None = None
    lowered: Callable[[str], None] | None = None
    prefix: str = ""


Opener = Callable[[str, Access], Transport]
"""``opener(url, access)`` returns how to reach the broker at a URL."""

_MEMORY: dict[str, MemoryTransport] = {}


def _mqtt(url: str, access: Access) -> Transport:
    kind: Any = importlib.import_module("p2pfl.network.transport.mqtt").MqttTransport
    names = ("user", "password", "ca", "certificate", "key", "version", "qos", "lowered")
    options = {name: getattr(access, name) for name in names}
    made: Transport = kind(url, **options, **({} if access.limit is None else {"limit": access.limit}))
    return made


def _memory(url: str, access: Access) -> Transport:
    """Return the broker of this process with the name after the scheme."""
    del access
    return _MEMORY.setdefault(url, MemoryTransport())


def _folder(url: str, access: Access) -> Transport:
    kind: Any = importlib.import_module("p2pfl.network.transport.folder").FolderTransport
    made: Transport = kind.open(url, limit=access.limit)
    return made


SCHEMES: dict[str, Opener] = {
    "mqtt": _mqtt,
    "mqtts": _mqtt,
    "ws": _mqtt,
    "wss": _mqtt,
    "memory": _memory,
    "file": _folder,
}
"""Functions that open the URLs of each scheme; :func:`register` adds to them."""


def register(scheme: str, opener: Opener) -> None:
    """Register a transport for the URLs of a scheme, in this process.

    An installed package does it for all processes by an entry point of the group ``p2pfl.transports``, whose name is
    the scheme and which names the opener.

    Parameters
    ----------
    scheme
        Scheme, which stands before ``://``.
    opener
        ``opener(url, access)`` returns the transport.

    Examples
    --------
    >>> register("memory2", lambda url, access: MemoryTransport())
    >>> type(opened("memory2://anywhere")).__name__
    'MemoryTransport'
    >>> del SCHEMES["memory2"]
    """
    SCHEMES[scheme] = opener


def opened(url: str, access: Access | None = None) -> Transport:
    """Return the transport that reaches the broker at a URL.

    Parameters
    ----------
    url
        ``mqtt://``, ``mqtts://``, ``ws://`` or ``wss://`` and host and port; ``memory://name`` for peers of one
        process; ``file:///folder`` for a shared folder; or one of a registered scheme.
    access
        What it may use.

    Raises
    ------
    BrokerError
        The scheme is not registered, or it is not the URL of a broker.

    Examples
    --------
    >>> opened("memory://test") is opened("memory://test")
    True
    >>> opened("carrier-pigeon://roof")
    Traceback (most recent call last):
    p2pfl.core.errors.BrokerError: no transport is registered for carrier-pigeon:// (known: file, memory, mqtt, mqtts, \
ws, wss); correct the URL, or register one with p2pfl.transport.register
    """
    access = access or Access()
    return below(find_opener(url)(url, replace(access, prefix="")), access.prefix)  # it may open that of another scheme


def find_opener(url: str) -> Opener:
    """Return what opens a URL.

    Raises
    ------
    BrokerError
        The scheme is not registered.
    """
    scheme = urlsplit(url).scheme if "://" in url else "mqtt"  # whose opener says what is wrong with it
    if scheme not in SCHEMES and scheme in find_entry_points(GROUP):
        SCHEMES[scheme] = load(GROUP, scheme)
    if scheme not in SCHEMES:
        schemes = ", ".join(sorted({*SCHEMES, *find_entry_points(GROUP)}))
        raise BrokerError(
            f"no transport is registered for {scheme}:// (known: {schemes}); correct the URL, or register one with "
            "p2pfl.transport.register"
        )
    return SCHEMES[scheme]
