"""Configuration of mosquitto for untrusted networks: TLS, authenticated clients, and access rights per peer."""

import base64
import contextlib
import datetime as dt
import hashlib
import ipaddress
import os
import pwd
import re
import secrets
import socket
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from p2pfl.core.errors import InputError

PACKET = 2 * 1024 * 1024
"""Largest packet in bytes."""

ITERATIONS = 101
"""Iterations of PBKDF2, as in mosquitto_passwd; drawn passwords have 192 bits, which iterations cannot improve."""

EVERYWHERE = {"0.0.0.0", "::"}  # noqa: S104 (addresses that do not reach it)

YEARS = 10
"""Period in which the certificate of the broker is valid."""


class Issuer(Protocol):
    """Authority that signs the certificates of brokers."""

    @property
    def key(self) -> ec.EllipticCurvePrivateKey:
        """Its private key."""

    @property
    def certificate(self) -> x509.Certificate:
        """Its certificate, which peers trust."""

    @property
    def chain(self) -> Sequence[x509.Certificate]:
        """Certificates that a broker shows after its own."""


def configure(
    folder: Path,
    *,
    rights: Mapping[str, Iterable[str]],
    peers: Iterable[str],
    host: str,
    port: int,
    public: Iterable[str] = (),
    certified: Iterable[str] = (),
    issuer: Issuer | None = None,
) -> list[str]:
    """Write the files of mosquitto and the credentials of each peer; passwords, key and certificate are made once.

    Parameters
    ----------
    folder
        Folder for ``mosquitto.conf``, ``acl``, ``broker.pem`` and ``broker.key``; ``passwords`` and
        ``credentials/NAME.toml``; and ``data``, where mosquitto stores its state. If root writes it, it belongs to
        the system user ``mosquitto``, as which the broker runs.
    rights
        Topic filters by ``read`` and ``write``, with ``%u`` for a peer's name.
    peers
        Names of peers that get a password; without any, peers present certificates for their names, signed by an
        authority in ``ca.pem`` and not listed in ``revoked.pem``, if there is one.
    host, port
        Address to listen on.
    public
        Other host names by which peers reach it.
    certified
        Without passwords, the names to which access is limited; all certificates have access if there are none.
    issuer
        Authority that signs its certificate; without one, the broker signs it itself.

    Returns
    -------
    list of str
        Hosts in its certificate.

    Raises
    ------
    InputError
        The port is invalid, the folder cannot be written, there is no authority to trust, or an existing certificate
        has no key or is not for these hosts.
    """
    if not 0 < port < 2**16:
        raise InputError(f"{port} is not a port from 1 to 65535; choose another")
    names = sorted(peers)
    folder = folder.resolve()
    hosts = [*([] if host in EVERYWHERE else [host]), *public]
    named = _certificate_hosts(folder, hosts)
    if not names and not (folder / "ca.pem").is_file():
        raise InputError(
            f"neither an experiment, whose peers get passwords, nor {folder / 'ca.pem'}, which signs their "
            "certificates, is given; name the one, or copy the other there"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        before = (folder / "acl").read_text("utf-8") if (folder / "acl").exists() else ""
        _write(folder / "acl", acl(rights, names=names or certified, before=before), mode=0o600)
        _write(
            folder / "mosquitto.conf", configuration(folder, host=host, port=port, passwords=bool(names)), mode=0o644
        )
        if not named:
            named = [*dict.fromkeys(["localhost", "127.0.0.1", socket.gethostname(), *hosts])]
            _certify(folder, hosts=named, issuer=issuer, now=dt.datetime.now(dt.UTC))
        (folder / "data").mkdir(mode=0o700, exist_ok=True)
        if names:
            _admit(folder, names)
        _hand_over([folder / each for each in ("acl", "broker.key", "data", "passwords")])
    except OSError as error:
        raise InputError(
            f"{error.filename or folder} cannot be written ({error.strerror}); choose another folder"
        ) from None
    return named


def certify_again(folder: Path, *, issuer: Issuer, now: dt.datetime) -> None:
    """Replace the certificate of a broker, and its key, by others for the same hosts.

    Raises
    ------
    InputError
        There is no certificate with its key, or the folder cannot be written.
    """
    folder = folder.resolve()
    hosts = _certificate_hosts(folder, [])
    if not hosts:
        raise InputError(f"there is no certificate {folder / 'broker.pem'} to replace; write the bundles first")
    try:
        _certify(folder, hosts=hosts, issuer=issuer, now=now)
        _hand_over([folder / "broker.key"])
    except OSError as error:
        raise InputError(f"{folder} cannot be written ({error.strerror}); choose another folder") from None


def find_closed_folder(folder: Path) -> Path | None:
    """Return the first parent folder of mosquitto's files that its system user cannot pass.

    ``None`` if there is none, or if this process is not root, so that mosquitto keeps its user.
    """
    if os.geteuid():
        return None
    way = [folder.resolve(), *folder.resolve().parents][::-1]
    return next((each for each in way if not each.stat().st_mode & stat.S_IXOTH), None)


def configuration(folder: Path, *, host: str, port: int, passwords: bool) -> str:
    """Return the text of ``mosquitto.conf``."""
    who = [f"password_file {folder / 'passwords'}"]
    if not passwords:
        who = [f"cafile {folder / 'ca.pem'}", "require_certificate true", "use_identity_as_username true"]
        who += [f"crlfile {folder / 'revoked.pem'}"] if (folder / "revoked.pem").is_file() else []
    lines = [
        "# Clients and their access rights",
        f"listener {port} {host}",
        f"certfile {folder / 'broker.pem'}",
        f"keyfile {folder / 'broker.key'}",
        "tls_version tlsv1.2",
        "allow_anonymous false",
        *who,
        f"acl_file {folder / 'acl'}",
        "# Chunks in flight; a peer never has more than 400 messages or 16 MB on the way to it",
        "set_tcp_nodelay true",
        f"max_packet_size {PACKET}",
        "max_inflight_messages 100",
        "max_queued_messages 4000",
        f"max_queued_bytes {64 * 2**20}",
        "max_keepalive 60",
        "max_connections 10000",
        "# States survive a restart; without this, peers publish theirs again",
        "persistence true",
        f"persistence_location {folder / 'data'}/",
        "autosave_interval 60",
        "sys_interval 0",
        "log_dest stderr",
        "log_type error",
        "log_type warning",
        "log_type notice",
    ]
    return "\n".join(lines) + "\n"


def acl(rights: Mapping[str, Iterable[str]], *, names: Iterable[str] = (), before: str = "") -> str:
    """Return the text of the access list.

    Parameters
    ----------
    rights
        Topic filters of a swarm by ``read`` and ``write``, with ``%u`` for the name of a client.
    names
        Clients of the swarm, which alone have these rights; without any, all clients have them.
    before
        The list so far. What it has of other swarms stays, also below other prefixes; so do clients.

    Examples
    --------
    >>> print(acl({"write": ["peer/%u/state"], "read": ["peer/+/state"]}, names=["ada"]), end="")
    user ada
    topic write peer/ada/state
    topic read peer/+/state
    """
    filters = [(kind, each) for kind, listed in rights.items() for each in listed]
    ours = {_swarm_of(each) for _, each in filters}
    clients, sections, user = {*names}, dict[tuple[str, str], list[str]](), ""
    for line in before.splitlines():
        word, _, rest = line.partition(" ")
        owner = "" if word == "pattern" else user
        if word == "user":
            user = rest
        elif _swarm_of(line) not in ours:
            sections.setdefault((owner, _swarm_of(line)), []).append(line)
        elif owner and clients:
            clients.add(owner)
    for kind, each in filters:
        for client in clients or {""}:
            line = f"topic {kind} {each.replace('%u', client)}" if client else f"pattern {kind} {each}"
            sections.setdefault((client, _swarm_of(each)), []).append(line)
    lines = list[str]()
    for owner in sorted({owner for owner, _ in sections}):  # lines of no client come first
        lines += [f"user {owner}"] if owner else []
        lines += [line for key in sorted(sections) if key[0] == owner for line in sections[key]]
    return "".join(f"{line}\n" for line in lines)


def _swarm_of(line: str) -> str:
    """Return the beginning of the topics of a line, ``p2pfl/v1/SWARM`` after a prefix, or its first three levels."""
    topic = line.rsplit(" ", maxsplit=1)[-1]
    placed = re.match("(.*/)?p2pfl/v1/[^/]+", topic)
    return placed[0] if placed else "/".join(topic.split("/")[:3])


def hash_password(password: str, *, salt: bytes) -> str:
    """Hash a password as mosquitto 2 stores it: PBKDF2-HMAC-SHA512, its kind 7.

    Examples
    --------
    >>> hash_password("secret", salt=bytes(12))[:25]
    '$7$101$AAAAAAAAAAAAAAAA$G'
    """
    key = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, ITERATIONS)
    return f"$7${ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(key).decode()}"


def _admit(folder: Path, names: list[str]) -> None:
    """Draw a password for each peer without one."""
    credentials = folder / "credentials"
    credentials.mkdir(mode=0o700, exist_ok=True)
    passwords = folder / "passwords"
    lines = dict(line.split(":", 1) for line in passwords.read_text("ascii").splitlines()) if passwords.exists() else {}
    for name in names:
        path = credentials / f"{name}.toml"
        if name not in lines or not path.exists():
            password = secrets.token_urlsafe(24)
            _write(path, f'user = "{name}"\npassword = "{password}"\n', mode=0o600)
            lines[name] = hash_password(password, salt=secrets.token_bytes(12))
    _write(passwords, "".join(f"{name}:{line}\n" for name, line in sorted(lines.items())), mode=0o600)


def _certify(folder: Path, *, hosts: Sequence[str], issuer: Issuer | None, now: dt.datetime) -> None:
    """Write a key, and a certificate that an authority signs, or the broker itself: peers trust either one alone.

    The name has digits of the key, because OpenSSL looks up an old and a new certificate by their names.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    name = f"p2pfl broker {x509.SubjectKeyIdentifier.from_public_key(public).digest.hex()[:8]}"
    by = None if issuer is None else issuer.certificate.subject
    signer = key if issuer is None else issuer.key
    built = begin_certificate(name, public, ca=issuer is None, now=now, issuer=by)
    built = built.add_extension(x509.SubjectAlternativeName([_alternative(each) for each in hosts]), critical=False)
    built = built.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
    built = built.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    signed = built.sign(signer, hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    shown = [signed, *([] if issuer is None else issuer.chain)]
    text = "".join(each.public_bytes(serialization.Encoding.PEM).decode() for each in shown)
    _write(folder / "broker.pem", text, mode=0o644)
    _write(folder / "broker.key", private.decode(), mode=0o600)


def begin_certificate(
    subject: str, key: ec.EllipticCurvePublicKey, *, ca: bool, now: dt.datetime, issuer: x509.Name | None = None
) -> x509.CertificateBuilder:
    """Return a certificate that has no signature yet.

    Parameters
    ----------
    subject
        Common name.
    key
        Key of the subject.
    ca
        True if the key may sign other certificates.
    now
        The time; certificates begin a day earlier, because the clock of another device may be behind.
    issuer
        Name of the authority; the subject itself by default.
    """
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    return (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(issuer or name)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=0 if ca else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(_key_usage(ca=ca), critical=True)
    )


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    """Return what a key may be used for, without which some versions of OpenSSL accept no authority."""
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _certificate_hosts(folder: Path, hosts: Sequence[str]) -> list[str]:
    """Return the hosts in an existing certificate; peers would not trust the broker under another host."""
    wanted = {_alternative(each): each for each in hosts}
    file, key = folder / "broker.pem", folder / "broker.key"
    if file.is_file() != key.is_file():
        there, lacks = (file, key) if file.is_file() else (key, file)
        raise InputError(f"{there} has no {lacks.name} beside it; put it there, or remove {there.name}")
    if not file.is_file():
        return []
    try:
        made = x509.load_pem_x509_certificate(file.read_bytes())
        named = list(made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except (ValueError, x509.ExtensionNotFound):
        raise InputError(f"{file} is not a certificate; remove it, and broker.key beside it") from None
    if missing := [each for name, each in wanted.items() if name not in named]:
        raise InputError(
            f"the certificate {file} does not name the host {missing[0]}; leave the host out, or remove "
            "broker.pem and broker.key and give peers the new certificate"
        )
    return [str(each.value) for each in named]


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host.encode("idna").decode())
    except UnicodeError:
        raise InputError(f'"{host}" is neither an address nor a host name; correct it') from None


def _hand_over(paths: Iterable[Path]) -> None:
    """Give mosquitto access to its files after it drops the rights of root."""
    with contextlib.suppress(KeyError):
        user = pwd.getpwnam("mosquitto")
        for path in paths:
            if os.geteuid() == 0 and path.exists():
                os.chown(path, user.pw_uid, user.pw_gid)


def _write(path: Path, text: str, *, mode: int) -> None:
    """Write a file that other users could never read beyond its mode."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)
