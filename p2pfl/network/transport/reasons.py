"""Reasons for failures of a broker, with a remedy, and whether a retry may help."""

import socket
import ssl

from p2pfl.network.transport.address import EXPIRED, Address, alert_name

NOT_YET_VALID = 9
"""OpenSSL's ``X509_V_ERR_CERT_NOT_YET_VALID``: the clock of a device may be slow until its network is up."""

TEMPORARY = frozenset({0x80, 0x83, 0x91, 0x97})
"""Codes of a SUBACK after which a broker may grant the same subscription later.

These are unspecified error (the only refusal of MQTT 3.1.1), implementation specific error, packet identifier in use,
and quota exceeded. All others (not authorized, topic filter invalid, unsupported kinds of subscription) are final.
"""


def clock_behind(cause: BaseException | None) -> bool:
    """Return whether a trusted certificate is not valid yet, so that the clock of this device is behind."""
    return isinstance(cause, ssl.SSLCertVerificationError) and cause.verify_code == NOT_YET_VALID


def final(cause: BaseException, *, code: str | None) -> bool:
    """Return whether another attempt to connect would fail in the same way.

    Parameters
    ----------
    cause
        Exception of the socket or the client library.
    code
        Reason in the CONNACK of the broker, if it sent one.

    Examples
    --------
    >>> final(ConnectionRefusedError(), code=None), final(Exception(), code="Not authorized")
    (False, True)
    """
    match cause:
        case ssl.SSLCertVerificationError():
            return not clock_behind(cause)
        case ssl.SSLError():
            name = alert_name(cause)
            return bool(name) and name not in _PASSING  # the broker does not trust this client
        case UnicodeError():
            return True  # the host name is unknown
        case _:
            return code in _REMEDIES and code != _BUSY


def unreachable(where: Address, cause: BaseException, *, code: str | None) -> str:
    """Describe why a broker cannot be reached and what to do about it, in one sentence; see :func:`final`."""
    why, remedy = _why(where, cause) if code is None else _explain_refusal(code)
    return f"cannot connect to an MQTT broker at {where} because {why}; {remedy}"


def _explain_refusal(code: str) -> tuple[str, str]:
    return f"it denies access ({code})", _REMEDIES.get(code, "check its log")


def _why(where: Address, cause: BaseException) -> tuple[str, str]:
    match cause:
        case ssl.SSLCertVerificationError():
            return _explain_distrust(cause)
        case ssl.SSLError() if (named := _ALERTS.get(alert_name(cause))) is not None:
            return named
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
                remedy += (
                    ", and whether it asks for a certificate of its own authority, and yours is neither old nor revoked"
                )
            return "it closed the connection without an answer", remedy


def _explain_distrust(cause: ssl.SSLCertVerificationError) -> tuple[str, str]:
    if clock_behind(cause):
        return "its certificate is not valid yet by the clock of this device", "set the clock"
    if cause.verify_code == EXPIRED:
        why = "its certificate has expired by the clock of this device"
        return why, "renew the certificate, or set the clock if it is ahead"
    why = f"its certificate is not trusted ({cause.verify_message.rstrip('.')})"
    return why, "name the CA that signed it, and use the host name in the certificate"


_BUSY = "Server unavailable"
_CREDENTIALS = "P2PFL_BROKER_USER and P2PFL_BROKER_PASSWORD, or the file transport.credentials"
_REMEDIES = {
    "Bad user name or password": f"correct {_CREDENTIALS}",
    "Not authorized": f"set or correct {_CREDENTIALS}, or give a certificate",
    "Bad authentication method": f"set {_CREDENTIALS}, or give a certificate",
    "Banned": "ask its operator for the reason",
    "Unsupported protocol version": "choose another MQTT version",
    "Client identifier not valid": "rename the peer",
    _BUSY: "wait, or look at its log",
}
"""Remedies by the reason of a broker for denying access; all reasons except the last are final."""

_PASSING = frozenset({"CERTIFICATE_EXPIRED", "BAD_CERTIFICATE", "INTERNAL_ERROR", "BAD_RECORD_MAC"})
"""Alerts whose reason may pass.

The clock of a broker may be wrong until its network is up, it may lack memory or be away behind a proxy, and a link may
change bits.
"""

_ALERTS = {
    "CERTIFICATE_REVOKED": (
        "it refuses the certificate of this peer as revoked",
        "ask the operator of the broker why, and send a request with new keys if this device is to return",
    ),
    "CERTIFICATE_EXPIRED": (
        "it refuses the certificate of this peer as expired",
        "ask the operator to renew it (p2pfl deploy --renew), or to set the clock of the broker",
    ),
    "BAD_CERTIFICATE": (
        "it refuses the certificate of this peer (bad certificate)",
        "ask the operator whether it was revoked or is not valid by the clock of the broker",
    ),
    "UNKNOWN_CA": (
        "it does not know the authority that signed the certificate of this peer",
        "ask the operator for a certificate of the current authority",
    ),
    "CERTIFICATE_REQUIRED": (
        "it asks for a certificate",
        "name yours with transport.certificate and transport.key",
    ),
}
"""Reason and remedy of alerts with which a broker refuses a certificate, or the lack of one."""
