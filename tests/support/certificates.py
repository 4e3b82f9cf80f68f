"""Certificates of authorities, brokers and peers, as openssl would make them, and folders for mosquitto."""

import contextlib
import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


def certificate(name, *, issuer=None, key, issuer_key=None, ca=False, begins=2020, ends=2120, hosts=("127.0.0.1",)):
    """A certificate that is signed by its own key, or by that of an issuer."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names = [x509.IPAddress(ipaddress.ip_address(host)) for host in hosts]
    authority = (issuer_key or key).public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(dt.datetime(begins, 1, 1, tzinfo=dt.UTC))
        .not_valid_after(dt.datetime(ends, 1, 1, tzinfo=dt.UTC))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(authority), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(issuer_key or key, hashes.SHA256())
    )


def write(folder, name, item):
    """Write a certificate or a key as PEM; return where."""
    if isinstance(item, x509.Certificate):
        data = item.public_bytes(serialization.Encoding.PEM)
    else:
        data = item.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    path = folder / name
    path.write_bytes(data)
    path.chmod(0o644 if isinstance(item, x509.Certificate) else 0o600)
    return path


def revocations(folder, revoked, *, issuer, issuer_key):
    """Write the list of an authority with one revoked certificate; return where."""
    then = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
    entry = x509.RevokedCertificateBuilder().serial_number(revoked.serial_number).revocation_date(then).build()
    listed = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(issuer)
        .last_update(then)
        .next_update(dt.datetime(2120, 1, 1, tzinfo=dt.UTC))
        .add_revoked_certificate(entry)
        .sign(issuer_key, hashes.SHA256())
    )
    path = folder / "revoked.crl"
    path.write_bytes(listed.public_bytes(serialization.Encoding.PEM))
    path.chmod(0o644)
    return path


def authority(folder):
    """Write the certificate of a CA, and a certificate of a broker that it signed with its key; return where."""
    ours, theirs = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = certificate("a CA", key=ours, ca=True)
    signed = certificate("broker", key=theirs, issuer=ca.subject, issuer_key=ours)
    key = write(folder, "broker.key", theirs)
    key.chmod(0o644)  # the broker becomes another user
    return write(folder, "ca.pem", ca), write(folder, "broker.pem", signed), key


def reachable(folder):
    """Let the user mosquitto, which it becomes, pass through pytest's folders."""
    for each in (folder, *folder.parents):
        with contextlib.suppress(PermissionError):
            each.chmod(each.stat().st_mode | 0o011)
