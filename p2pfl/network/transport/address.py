"""Addresses of brokers as URLs, and the TLS settings to trust them."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import ssl
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import unquote, urlsplit

from p2pfl.core.errors import BrokerError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

NO_CHECK_TIME = 0x200000
"""OpenSSL's ``X509_V_FLAG_NO_CHECK_TIME``, for which Python has no name."""

EXPIRED = 10
"""OpenSSL's ``X509_V_ERR_CERT_HAS_EXPIRED``."""

PORTS = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
"""Default port of each scheme."""


@dataclass(frozen=True)
class Address:
    """Parsed URL of a broker, whose text form omits user and password.

    Parameters
    ----------
    scheme
        ``mqtt``, ``mqtts``, ``ws`` or ``wss``.
    host, port
        Host and port to connect to.
    path
        Path of a websocket.
    user, password
        Credentials for the broker.

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
    def parse(cls, url: str) -> Address:
        """Parse a URL.

        Raises
        ------
        BrokerError
            The text is not the URL of a broker.
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
        """Return the URL without user and password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path if self.web else ''}"

    @property
    def web(self) -> bool:
        """True for a websocket."""
        return self.scheme in ("ws", "wss")

    @property
    def secure(self) -> bool:
        """True with TLS."""
        return self.scheme in ("mqtts", "wss")

    @property
    def here(self) -> bool:
        """True for this machine, so that no one on the way can listen."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def tls(
        self, ca: Path | None, certificate: Path | None, key: Path | None, *, early: bool = False
    ) -> ssl.SSLContext | None:
        """Build the context that verifies the broker and presents a client certificate; ``None`` without TLS.

        Parameters
        ----------
        ca, certificate, key
            PEM files.
        early
            True to accept a certificate that is not valid yet, for a device whose clock is behind. One that has
            expired by that clock is refused all the same.

        Raises
        ------
        BrokerError
            A file cannot be used, other users can read the key, or there are files but no TLS.
        """
        if not self.secure:
            if ca or certificate or key:
                secure = {"mqtt": "mqtts", "ws": "wss"}[self.scheme]
                raise BrokerError(
                    f"{self} has no TLS for the certificates; change the URL to {secure}:// or leave them out"
                )
            return None
        if key and not certificate:
            raise BrokerError(f"the key {key} has no certificate; name its file as well")
        file = ca
        try:
            context = ssl.create_default_context(cafile=ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2  # the default of some builds of Python is lower
            context.sslsocket_class = type("Socket", (_Socket,), {"alerts": []})
            if early:
                context.verify_flags |= NO_CHECK_TIME
            if certificate:
                file = certificate
                # An empty password makes an encrypted key an error in place of a prompt at the terminal.
                context.load_cert_chain(certificate, key, password="")  # nosec B106
                _check_private(key or certificate)
        except OSError as error:  # includes ssl.SSLError
            reason = getattr(error, "reason", None) or error.strerror or "unreadable"
            pair = f"{file} and {key}" if key and file is certificate else f"{file}"
            raise BrokerError(
                f"{pair} cannot be used ({reason}); give PEM files, with a key that has no passphrase"
            ) from None
        return context


def alert_name(error: BaseException | None) -> str:
    """Return the name of an alert with which the other side has ended TLS; nothing for any other error.

    Examples
    --------
    >>> alert_name(ConnectionResetError())
    ''
    """
    reason = error.reason if isinstance(error, ssl.SSLError) else None
    return (reason or "").partition("ALERT_")[2]


def alert(context: ssl.SSLContext | None) -> ssl.SSLError | None:
    """Return the alert that the broker has sent after the handshake of a context of :meth:`Address.tls`, if any."""
    alerts: list[ssl.SSLError] = getattr(None if context is None else context.sslsocket_class, "alerts", [])
    return alerts[-1] if alerts else None


def _check_private(path: Path) -> None:
    """Raise :class:`BrokerError` for a private key that other users can read, as for an identity."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise BrokerError(
            f"{path}: other users can read this private key (mode {mode:04o}); run chmod 600 {path}, and ask "
            "for a new certificate if they may have done so"
        )


class _Socket(ssl.SSLSocket):
    """Socket that closes itself if the handshake fails, and refuses what has expired where OpenSSL checks no times.

    Paho leaves closing to the garbage collector. It also says nothing about an alert after the handshake, with which
    a broker refuses a certificate under TLS 1.3, so the socket keeps it.
    """

    alerts: ClassVar[list[ssl.SSLError]]
    """Alerts that the broker has sent after the handshake, of all sockets of one context."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except ssl.SSLError as error:
            self._note(error)
            raise

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        try:
            return super().send(data, flags)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):  # it is only busy
            raise
        except OSError:  # what the broker sent before it closed the connection can still be read
            with contextlib.suppress(OSError):
                self.recv(1)
            raise

    def _note(self, error: ssl.SSLError) -> None:
        if alert_name(error):
            self.alerts.append(error)

    def do_handshake(self, block: bool = False) -> None:  # noqa: FBT001, FBT002 - the signature of the standard library
        try:
            super().do_handshake(block)
            if self.context.verify_flags & NO_CHECK_TIME:
                _check_end(self.getpeercert() or {})
        except BaseException:
            self.close()
            raise


def _check_end(certificate: Mapping[str, object]) -> None:
    """Refuse a certificate that has expired by the clock of this device, as OpenSSL does."""
    if ssl.cert_time_to_seconds(str(certificate["notAfter"])) < time.time():
        error = ssl.SSLCertVerificationError(ssl.SSL_ERROR_SSL, "certificate has expired")
        error.verify_code = EXPIRED
        raise error


def _no_address(url: str) -> BrokerError:
    shown = re.sub(r"//.*@", "//", url)  # removes the password, wherever a stray slash or colon puts it
    hint = ", with special characters of a password percent-encoded" if "@" in url else ""
    return BrokerError(
        f"{shown!r} is not the URL of a broker; use one such as mqtt://host:1883, mqtts://host:8883 or "
        f"wss://host/mqtt{hint}"
    )
