"""Files of one peer on this device: its key, the roster, its login and its certificate."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from cryptography import x509

from p2pfl.core.errors import BrokerError, InputError, PeerError
from p2pfl.experiment import schema
from p2pfl.network.transport.login import login
from p2pfl.plugins.operate.bundles.authority import common_names
from p2pfl.plugins.operate.checks.finding import Finding, duration, ok, problem, warning
from p2pfl.privacy.keys import Identity, Roster

RENEWAL_PERIOD = dt.timedelta(days=30)
"""Time before the end of a certificate in which to renew it."""


def check_key(settings: schema.TrustSettings, *, peer: str, user: int | None = None) -> tuple[Finding, Identity | None]:
    """Check the private key of a peer, and return it.

    Parameters
    ----------
    settings
        The section ``[trust]``.
    peer
        Name of the owner of the key.
    user
        Number of the user who will run the peer; the present one by default.
    """
    if settings.keys is None:
        text = "trust.keys names no folder, so the key of this peer lasts for one run; set trust.keys"
        if settings.roster is not None:
            text = "trust.roster lists keys, and trust.keys names no folder with the key of this peer; set trust.keys"
            return problem("key", text), None
        return warning("key", text), None
    path = Path(settings.keys) / f"{peer}.pem"
    user = os.geteuid() if user is None else user
    try:
        owner = path.stat().st_uid
    except OSError as error:
        text = (
            f"{path} cannot be read ({error.strerror}); make the key with p2pfl identity {peer} --keys {settings.keys}"
        )
        return problem("key", f"{text}, and have it listed in the roster"), None
    if owner != user:
        text = f"{path} belongs to user {owner} and this is user {user}; run chown {user} {path}"
        return problem("key", f"{text}, or run p2pfl doctor as the user who runs the peer"), None
    try:
        identity = Identity.load(path)
    except InputError as error:
        return problem("key", str(error)), None
    return ok("key", f"{path} has the fingerprint {identity.fingerprint}"), identity


def check_roster(
    settings: schema.TrustSettings, *, peer: str, identity: Identity | None, peers: Iterable[str]
) -> Finding:
    """Check that the roster lists this peer with its key, and all others.

    Parameters
    ----------
    settings
        The section ``[trust]``.
    peer, identity
        The peer and its key, if there is one.
    peers
        All peers of the experiment.
    """
    if settings.roster is None:
        text = "there is no roster, so this peer trusts the first key that it sees for each name; set trust.roster"
        return warning("roster", text)
    try:
        read = Roster.read(settings.roster)
        if identity is not None:
            read.check(peer, identity.public)
    except (InputError, PeerError) as error:
        return problem("roster", str(error))
    if missing := sorted({*peers} - {*read.peers}):
        text = (
            f"{settings.roster} does not list {', '.join(missing[:5])}; add their keys, and give all devices the same"
        )
        return problem("roster", f"{text} roster")
    return ok("roster", f"{settings.roster} lists all {len(read.peers)} peers, digest {read.fingerprint}")


def check_login_file(
    settings: schema.TransportSettings, *, peer: str, environment: Mapping[str, str]
) -> Finding | None:
    """Check the user and password that the peer shows the broker; ``None`` if there are none.

    Parameters
    ----------
    settings
        The section ``[transport]``.
    peer
        Name of the peer.
    environment
        Environment variables, such as ``os.environ``.
    """
    path = None if settings.credentials is None else Path(settings.credentials)
    try:
        credentials = login(path, peer=peer, environment=environment)
    except BrokerError as error:
        return problem("credentials", str(error))
    if credentials.user is None:
        return None
    if credentials.user != peer and settings.credentials is not None:
        text = (
            f'{path} has the login of "{credentials.user}" and this peer is "{peer}"; an access list that names users'
        )
        return warning("credentials", f"{text} would refuse what it publishes, so give it its own file")
    return ok("credentials", f'the login of "{credentials.user}"')


def check_certificate(settings: schema.TransportSettings, *, peer: str, now: dt.datetime) -> Finding | None:
    """Check the client certificate; ``None`` if there is none.

    Parameters
    ----------
    settings
        The section ``[transport]``.
    peer
        Peer whose name the certificate must have.
    now
        The time.
    """
    if settings.certificate is None:
        return None
    path = Path(settings.certificate)
    try:
        read = x509.load_pem_x509_certificate(path.read_bytes())
    except OSError as error:
        return problem("certificate", f"{path} cannot be read ({error.strerror}); correct transport.certificate")
    except ValueError:
        return problem("certificate", f"{path} is not a certificate as PEM; correct transport.certificate")
    names = common_names(read.subject)
    if peer not in names:
        text = f'{path} is the certificate of "{", ".join(names)}" and this peer is "{peer}"'
        return problem("certificate", f"{text}; give each peer its own certificate")
    left = read.not_valid_after_utc - now
    renew = f"have its operator renew it (p2pfl deploy --renew {peer})"
    if left < dt.timedelta():
        text = f"{path} has expired {duration(-left.total_seconds())} ago; {renew}, or set the clock if it is ahead"
        return problem("certificate", text)
    if left < RENEWAL_PERIOD:
        return warning("certificate", f"{path} expires in {duration(left.total_seconds())}; {renew}")
    return ok("certificate", f'{path} is that of "{peer}" and valid for {duration(left.total_seconds())}')
