"""Credentials for a broker, from a file or the environment, never from a command line."""

import stat
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from p2pfl.core.errors import BrokerError
from p2pfl.network.transport.address import PORTS, Address

USER, PASSWORD = "P2PFL_BROKER_USER", "P2PFL_BROKER_PASSWORD"
"""Environment variables."""


@dataclass(frozen=True)
class Login:
    """User and password, with a text form that omits the password.

    Examples
    --------
    >>> login(None, peer="ada", environment={USER: "ada", PASSWORD: "secret"})
    Login(user='ada')
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)


def login(location: Path | None, *, peer: str, environment: Mapping[str, str]) -> Login:
    """Return the credentials of a peer.

    Parameters
    ----------
    location
        File, or folder with one file for each peer, ``NAME.toml``; ``None`` for the environment variables.
    peer
        Name of the peer.
    environment
        Mapping such as ``os.environ``.

    Raises
    ------
    BrokerError
        The file cannot be read, other users can read it, it is malformed, or it belongs to another peer in the folder.
    """
    if location is None:
        credentials = Login(environment.get(USER), environment.get(PASSWORD))
        if credentials.password is not None and credentials.user is None:
            raise BrokerError(f"{PASSWORD} is set without {USER}; set both")
        return credentials
    path = location / f"{peer}.toml" if location.is_dir() else location
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        table = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise BrokerError(
            f"the credentials {path} cannot be read ({error.strerror}); correct transport.credentials"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise _other(path) from None  # the error may quote the password
    if mode & 0o077:
        raise BrokerError(f"other users can read the credentials {path} (mode {mode:03o}); run chmod 600 {path}")
    if not {"user"} <= set(table) <= {"user", "password"} or not all(isinstance(each, str) for each in table.values()):
        raise _other(path)
    if path != location and table["user"] != peer and (location / f"{table['user']}.toml").exists():
        raise BrokerError(
            f'{path} has the credentials of "{table["user"]}" instead of "{peer}", although that peer has its '
            "own file; swap the files back"
        )
    return Login(table["user"], table.get("password"))


def overheard(password: str | None, urls: Iterable[str]) -> tuple[str, ...]:
    """Return the brokers to which a password travels unencrypted over a network; none without a password.

    Examples
    --------
    >>> overheard("secret", ["mqtts://broker.example", "mqtt://localhost"])
    ()
    >>> overheard("secret", ["mqtt://broker.example"])
    ('mqtt://broker.example:1883',)
    """
    if password is None:
        return ()
    parsed = map(Address.parse, filter(_mqtt, urls))
    return tuple(str(where) for where in parsed if not where.secure and not where.here)


def _mqtt(url: str) -> bool:
    """Return whether a URL is one of MQTT, or is meant to be one; other transports show no password by themselves."""
    scheme, separator, _ = url.partition("://")
    return not separator or scheme in PORTS


def _other(path: Path) -> BrokerError:
    return BrokerError(f'{path} does not hold user = "..." and password = "..."; correct it')
