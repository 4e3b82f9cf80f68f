"""The way to the broker: name, port, TLS."""

from __future__ import annotations

import datetime as dt
import socket
import ssl
from pathlib import Path

from cryptography import x509

from p2pfl.core.errors import BrokerError
from p2pfl.experiment import schema
from p2pfl.network.transport.address import Address
from p2pfl.network.transport.reasons import clock_behind, unreachable
from p2pfl.plugins.operate.bundles.authority import common_names
from p2pfl.plugins.operate.checks.finding import Finding, Report, duration, ok, problem, warning
from p2pfl.plugins.operate.checks.identity_checks import RENEWAL_PERIOD

SECONDS_TO_ANSWER = 5.0
"""Time that the broker has to answer."""


def check_address(report: Report, url: str, settings: schema.TransportSettings, *, now: dt.datetime) -> bool:
    """Check name, port and TLS of a broker; return whether a peer can connect.

    Parameters
    ----------
    report
        Report that gains the findings.
    url
        URL of the broker.
    settings
        The section ``[transport]``.
    now
        The time.
    """
    try:
        where = Address.parse(url)
        paths = [None if each is None else Path(each) for each in (settings.ca, settings.certificate, settings.key)]
        context = where.tls(*paths)
    except BrokerError as error:
        return report.add(problem("broker", str(error)))
    try:
        numbers = {each[4][0] for each in socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        text = f"the host {where.host} is not known here; check its spelling, the network, and the name server"
        return report.add(problem("name", text))
    report.add(ok("name", f"{where.host} is {', '.join(sorted(map(str, numbers)))}"))
    try:
        with socket.create_connection((where.host, where.port), timeout=SECONDS_TO_ANSWER):
            pass
    except OSError as error:
        return report.add(problem("port", unreachable(where, error, code=None)))
    report.add(ok("port", f"{where.host}:{where.port} is open"))
    if context is not None:
        return report.add(_handshake(where, context, ca=paths[0], now=now, latest=report.latest))
    text = f"{where} is not encrypted, so the network sees which peers communicate; use mqtts:// or wss://"
    return report.add(None if where.here else warning("tls", text))


def _handshake(
    where: Address, context: ssl.SSLContext, *, ca: Path | None, now: dt.datetime, latest: dict[str, float]
) -> Finding:
    """Return the fault of the broker's certificate, or its remaining validity."""
    reason = _refusal(where, context)
    shown = _certificate(where)
    if shown is None:
        return problem("tls", unreachable(where, reason or ssl.SSLError("no certificate"), code=None))
    if reason is None or clock_behind(reason):
        latest["the certificate of the broker"] = shown.not_valid_before_utc.timestamp()
    if reason is not None and not (clock_behind(reason) and ca is not None):
        return problem("tls", _describe_distrust(where, reason, shown, ca=ca, now=now))
    ends = [] if ca is None else [each.not_valid_after_utc for each in _trusted(ca)]
    if ends and max(ends) - now < RENEWAL_PERIOD:
        text = f"all certificates in {ca} expire within {duration((max(ends) - now).total_seconds())}; renew the"
        return warning("tls", f"{text} authority that signs that of the broker, and give all peers its certificate")
    left = shown.not_valid_after_utc - now
    for_ = duration(left.total_seconds())
    if left < RENEWAL_PERIOD:
        return warning(
            "tls", f"the certificate of the broker expires in {for_}; renew it, and give all peers the new one"
        )
    return ok("tls", f"the certificate of the broker is trusted and valid for {for_}")


def _describe_distrust(
    where: Address, reason: Exception, shown: x509.Certificate, *, ca: Path | None, now: dt.datetime
) -> str:
    """Return the sentence for a certificate that is not trusted, with its content."""
    if not isinstance(reason, ssl.SSLCertVerificationError):
        return unreachable(where, reason, code=None)
    begins, ends = shown.not_valid_before_utc, shown.not_valid_after_utc
    if ends < now:
        text = f"the certificate of {where} expired on {ends:%Y-%m-%d} and the clock says {now:%Y-%m-%d}"
        return f"{text}; renew the certificate, or set the clock if it is ahead"
    if clock_behind(reason):
        text = (
            f"the certificate of {where} is valid from {begins:%Y-%m-%d %H:%M} and the clock says {now:%Y-%m-%d %H:%M}"
        )
        return f"{text} (UTC); set the clock, or name the authority with transport.ca"
    if "not valid for" in reason.verify_message:
        text = f"the certificate of {where} is for {', '.join(_hosts(shown)) or 'no host'}"
        return f"{text}; use one of these in transport.broker, or have it made for {where.host}"
    authority = f"{ca}, which is {_authority(ca)}" if ca is not None else "the authorities of this system"
    text = f'the certificate of {where} is signed by "{_name(shown.issuer)}" and not trusted by {authority}'
    return (
        f"{text} ({reason.verify_message.rstrip('.')}); name the file of the authority that signed it as transport.ca"
    )


def _refusal(where: Address, context: ssl.SSLContext) -> Exception | None:
    """Return why a TLS handshake fails; ``None`` if it does not."""
    try:
        with (
            socket.create_connection((where.host, where.port), timeout=SECONDS_TO_ANSWER) as plain,
            context.wrap_socket(plain, server_hostname=where.host),
        ):
            return None
    except OSError as error:  # includes ssl.SSLError
        return error


def _certificate(where: Address) -> x509.Certificate | None:
    """Return the certificate that a broker shows, whoever signed it; ``None`` if it shows none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only to describe it: nothing is sent over this connection
    try:
        with (
            socket.create_connection((where.host, where.port), timeout=SECONDS_TO_ANSWER) as plain,
            context.wrap_socket(plain, server_hostname=where.host) as secure,
        ):
            data = secure.getpeercert(binary_form=True)
    except OSError:
        return None
    return None if data is None else x509.load_der_x509_certificate(data)


def _hosts(shown: x509.Certificate) -> list[str]:
    try:
        names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return [str(each.value) for each in names]


def _authority(ca: Path) -> str:
    """Return the names of the authorities in a file."""
    return " and ".join(f'"{_name(each.subject)}"' for each in _trusted(ca)) or "no certificate"


def _trusted(ca: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(ca.read_bytes())
    except (OSError, ValueError):
        return []


def _name(subject: x509.Name) -> str:
    return next(iter(common_names(subject)), subject.rfc4514_string())
