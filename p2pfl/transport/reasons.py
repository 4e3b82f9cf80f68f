"""Why a broker cannot be reached or refuses something, what to do about it, and whether asking again may help."""

import socket
import ssl

from p2pfl.transport.address import Address

NOT_YET_VALID = 9
"""OpenSSL's ``X509_V_ERR_CERT_NOT_YET_VALID``: the clock of a device may be behind until its network is up."""

TEMPORARY = frozenset({0x80, 0x83, 0x91, 0x97})
"""Codes of a SUBACK after which the same subscription may be granted later.

Unspecified error (the only refusal that MQTT 3.1.1 knows), implementation specific error, packet identifier in use, and
quota exceeded. All others (not authorized, topic filter invalid, a kind of subscription that is not supported) are
final.
"""


def final(cause: BaseException, *, code: str | None) -> bool:
    """Return whether another attempt to connect would fail in the same way.

    Parameters
    ----------
    cause
        What the socket or the client library raised.
    code
        The reason in the broker's CONNACK, if it sent one.

    Examples
    --------
    >>> final(ConnectionRefusedError(), code=None), final(Exception(), code="Not authorized")
    (False, True)
    """
    match cause:
        case ssl.SSLCertVerificationError():
            return cause.verify_code != NOT_YET_VALID
        case ssl.SSLError():
            return "ALERT" in (cause.reason or "")  # it does not trust us
        case UnicodeError():
            return True  # no name server knows such a host
        case _:
            return code in _REMEDIES and code != _BUSY


def unreachable(where: Address, cause: BaseException, *, code: str | None) -> str:
    """Say in one sentence why a broker cannot be reached and what to do about it; see :func:`final`."""
    why, remedy = _why(where, cause) if code is None else _refused(code)
    return f"expected an MQTT broker at {where}, but {why}: {remedy}"


def _refused(code: str) -> tuple[str, str]:
    return f"it does not let us in ({code})", _REMEDIES.get(code, "check its log")


def _why(where: Address, cause: BaseException) -> tuple[str, str]:
    match cause:
        case ssl.SSLCertVerificationError(verify_code=code) if code == NOT_YET_VALID:
            return "its certificate is not valid yet by the clock of this device", "set the clock"
        case ssl.SSLCertVerificationError():
            why = f"its certificate is not to be trusted ({cause.verify_message.rstrip('.')})"
            return why, "name the CA that signed it, and the host as the certificate does"
        case ssl.SSLError():
            why = f"TLS failed ({cause.reason or cause})"
            return why, "check that this is its TLS port and whether it asks for a certificate of its own authority"
        case ConnectionRefusedError():
            return "nothing listens there", "start one with `p2pfl broker` or correct host and port"
        case socket.gaierror() | UnicodeError():
            return f"the host {where.host} is not known", "check its spelling and the network"
        case TimeoutError():
            return "nothing answers there", "check host, port and firewall"
        case OSError() if not isinstance(cause, ConnectionError):
            return f"the connection failed ({cause.strerror or cause})", "check host, port and network"
        case _:
            remedy = "check scheme, port and MQTT version"
            if where.secure:
                remedy += ", and whether it asks for a certificate of its own authority"
            return "it closed the connection without an answer", remedy


_BUSY = "Server unavailable"
_CREDENTIALS = "P2PFL_BROKER_USER and P2PFL_BROKER_PASSWORD, or the file transport.credentials"
_REMEDIES = {
    "Bad user name or password": f"correct {_CREDENTIALS}",
    "Not authorized": f"set or correct {_CREDENTIALS}, or give a certificate",
    "Bad authentication method": f"set {_CREDENTIALS}, or give a certificate",
    "Banned": "ask whoever runs it why",
    "Unsupported protocol version": "ask for another MQTT version",
    "Client identifier not valid": "rename the peer",
    _BUSY: "wait, or look at its log",
}
"""What to do where a broker says why it does not let us in; it would say all but the last again."""
