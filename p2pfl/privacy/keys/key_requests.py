"""Requests of devices: a public key for the roster and a certificate request, signed by the private key.

The private keys of a device are made on it and never leave it. The request that it sends is not secret; a
request that is replaced on the way has another fingerprint, which people compare.
"""

from __future__ import annotations

import base64
import binascii
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import tomli_w
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from p2pfl.core.errors import InputError, StorageError
from p2pfl.core.files import replace
from p2pfl.privacy.keys import Identity, fingerprint, verify

DOMAIN = "request"
"""Domain of the signature."""

MAX_REQUEST_BYTES = 16_384
"""Bytes of the largest request that is read."""

_PREFIX = "ed25519:"


@dataclass(frozen=True)
class DeviceRequest:
    """Request of a device to the operator.

    Attributes
    ----------
    peer
        Its name.
    public
        Its public key for the roster, 32 bytes.
    certificate
        A certificate request as PEM.
    """

    peer: str
    public: bytes
    certificate: str

    @property
    def fingerprint(self) -> str:
        """The public key in a form for people to compare."""
        return fingerprint(self.public)

    @property
    def certificate_fingerprint(self) -> str:
        """The key of the certificate request in a form for people to compare."""
        key = self.read.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return fingerprint(key)

    @property
    def read(self) -> x509.CertificateSigningRequest:
        """The certificate request."""
        return x509.load_pem_x509_csr(self.certificate.encode())

    @property
    def signed(self) -> bytes:
        """The bytes that the device signs: its name, which has no zero byte, and the certificate request."""
        return self.peer.encode() + b"\0" + self.certificate.encode()

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a request and check its signature.

        Raises
        ------
        InputError
            It cannot be read, is not a request, or is not signed by the key in it.
        """
        try:
            with path.open("rb") as file:
                table = tomllib.loads(file.read(MAX_REQUEST_BYTES).decode())
            return cls._of(table)
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror}); name the request of a device") from None
        except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
            raise InputError(
                f"{path} is not a request that p2pfl identity --request wrote; copy the file from the device again"
            ) from None

    @classmethod
    def _of(cls, table: dict[str, Any]) -> Self:
        public = base64.b64decode(table["key"].removeprefix(_PREFIX), validate=True)
        request = cls(table["peer"], public, table["certificate_request"])
        signature = base64.b64decode(table["signature"], validate=True)
        if not verify(public, request.signed, signature, domain=DOMAIN):
            raise ValueError(request.peer)
        _ = request.read  # raises if it is none
        return request


def request(peer: str, *, keys: Path, to: Path) -> DeviceRequest:
    """Write the request of a device; make its keys if it has none.

    Parameters
    ----------
    peer
        Name of the peer.
    keys
        Folder with ``NAME.pem``, the key of the roster, and ``NAME.key``, that of the certificate.
    to
        File of the request.

    Raises
    ------
    InputError
        A key is there but cannot be used.
    StorageError
        A file cannot be written.
    """
    identity = Identity.load(keys / f"{peer}.pem")
    path = keys / f"{peer}.key"
    if not path.exists():
        save(path, private_pem(ec.generate_private_key(ec.SECP256R1())), mode=0o600)
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError):
        key = None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise InputError(f"{path} is not a P-256 key as PEM without a passphrase; remove it to make a new one")
    made = DeviceRequest(peer, identity.public, requested(key, peer=peer).decode())
    table = {
        "peer": peer,
        "key": _PREFIX + base64.b64encode(made.public).decode(),
        "certificate_request": made.certificate,
        "signature": base64.b64encode(identity.sign(made.signed, domain=DOMAIN)).decode(),
    }
    replace(to, tomli_w.dumps(table, multiline_strings=True).encode())
    return made


def requested(key: ec.EllipticCurvePrivateKey, *, peer: str) -> bytes:
    """Return a certificate request for a peer as PEM."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, peer)])
    made = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.PEM)


def private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PEM without a passphrase."""
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def save(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file as a whole or not at all, which other users could never read beyond its mode.

    Raises
    ------
    StorageError
        It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{path} cannot be written ({error.strerror}); choose another folder") from None
    replace(path, data, mode=mode)
