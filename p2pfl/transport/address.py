"""Where a broker is, as a URL says it, and how to trust it."""

import ipaddress
import re
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from p2pfl.errors import BrokerError

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
"""Schemes and the ports they stand for."""


@dataclass(frozen=True)
class Address:
    """A broker's URL, taken apart; as text it has neither user nor password.

    Parameters
    ----------
    scheme
        ``mqtt``, ``mqtts``, ``ws`` or ``wss``.
    host, port
        Where to connect.
    path
        Of a websocket.
    user, password
        What to show the broker, if it asks.

    Examples
    --------
    >>> address = Address.parse("mqtts://ada:p%40ss@[::1]")
    >>> str(address), address.user, address.password
    ('mqtts://[::1]:8883', 'ada', 'p@ss')
    """

    scheme: str
    host: str
    port: int
    path: str = "/mqtt"
    user: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Take a URL apart.

        Raises
        ------
        BrokerError
            It is not the URL of a broker.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or PORTS[parts.scheme]
            host = parts.hostname or ""
            host.encode("idna")
        except (ValueError, KeyError):
            raise _no_address(url) from None
        if not host or (parts.scheme in ("mqtt", "mqtts") and parts.path not in ("", "/")):
            raise _no_address(url)
        user = unquote(parts.username) if parts.username else None
        password = unquote(parts.password) if parts.password is not None else None
        path = parts.path if parts.path not in ("", "/") else cls.path
        return cls(parts.scheme, host, port, path, user, password)

    def __str__(self) -> str:
        """The URL without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path if self.web else ''}"

    @property
    def web(self) -> bool:
        """Whether it is a websocket."""
        return self.scheme in ("ws", "wss")

    @property
    def secure(self) -> bool:
        """Whether it has TLS."""
        return self.scheme in ("mqtts", "wss")

    @property
    def here(self) -> bool:
        """Whether it is this machine, so that nobody on the way can listen."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def tls(self, ca: Path | None, certificate: Path | None, key: Path | None) -> ssl.SSLContext | None:
        """Build what verifies the broker and shows it our certificate; ``None`` where the scheme has no TLS.

        Raises
        ------
        BrokerError
            A file cannot be used, others can read the key, or there are files but no TLS.
        """
        if not self.secure:
            if ca or certificate or key:
                secure = {"mqtt": "mqtts", "ws": "wss"}[self.scheme]
                raise BrokerError(
                    f"expected {secure}:// with certificates, got {self}: change the URL or leave them out"
                )
            return None
        if key and not certificate:
            raise BrokerError(f"expected a certificate with the key {key}, got none: name its file, too")
        file = ca
        try:
            context = ssl.create_default_context(cafile=ca)
            context.sslsocket_class = _TidySocket
            if certificate:
                file = certificate
                # An empty password: an encrypted key is an error here, not a question at the terminal.
                context.load_cert_chain(certificate, key, password="")  # nosec B106
                _check_private(key or certificate)
        except OSError as error:  # ssl.SSLError is one
            reason = getattr(error, "reason", None) or error.strerror or "unreadable"
            pair = f"{file} and {key}" if key and file is certificate else f"{file}"
            raise BrokerError(
                f"expected PEM files, keys without a passphrase, got {pair} ({reason}): correct the path or the file"
            ) from None
        return context


def _check_private(path: Path) -> None:
    """Refuse a private key that others can read, as that of an identity is."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise BrokerError(
            f"{path}: expected a private key that only its owner can use, got mode {mode:04o}: run chmod 600 {path}, "
            "and ask for a new certificate if others may have read it"
        )


class _TidySocket(ssl.SSLSocket):
    """Closes itself where the handshake fails; paho would leave it to the garbage collector."""

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - the signature of the standard library
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


def _no_address(url: str) -> BrokerError:
    shown = re.sub(r"//.*@", "//", url)  # no password, wherever a stray slash or colon has put it
    return BrokerError(
        f"expected a broker's URL such as mqtt://host:1883, mqtts://host:8883 or wss://host/mqtt, got {shown!r}:"
        f" correct it{', and percent-encode what is special in a password' if '@' in url else ''}"
    )
