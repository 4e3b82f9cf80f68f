"""Authority of a fleet: signs the certificates with which its devices log in at the broker."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from p2pfl.core.errors import InputError
from p2pfl.network.transport.hardened import YEARS, begin_certificate
from p2pfl.privacy.keys.key_requests import private_pem, save

NAME_PREFIX = "p2pfl fleet "
"""Start of the common name of an authority, before the name of the first experiment of its fleet."""


@dataclass(frozen=True)
class Authority:
    """Key and certificate of an authority.

    Attributes
    ----------
    key
        Its private key, which stays with the operator.
    certificate
        Certificate authority that the broker trusts.
    """

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def open(cls, folder: Path, *, name: str, now: dt.datetime) -> Self:
        """Return the authority in a folder; make what is missing, except for a key whose certificate is there.

        Raises
        ------
        InputError
            A file is there but cannot be used.
        StorageError
            The folder cannot be written.
        """
        private, public = folder / "ca.key", folder / "ca.pem"
        if not private.exists() and not public.exists():
            save(private, private_pem(ec.generate_private_key(ec.SECP256R1())), mode=0o600)
        try:
            key = serialization.load_pem_private_key(private.read_bytes(), password=None)
            made = x509.load_pem_x509_certificate(public.read_bytes()) if public.exists() else None
        except (OSError, ValueError, TypeError):
            key, made = None, None
        if not isinstance(key, ec.EllipticCurvePrivateKey) or (made and made.public_key() != key.public_key()):
            raise InputError(f"{private} and {public} are not a key and its certificate; restore both from a backup")
        if made is None or not _has_key_usage(made):  # an earlier release made it: the same key signs another
            own = begin_certificate(f"{NAME_PREFIX}{fleet_name(folder) or name}", key.public_key(), ca=True, now=now)
            made = own.sign(key, hashes.SHA256())
            save(public, made.public_bytes(serialization.Encoding.PEM))
        return cls(key, made)

    def sign(self, request: x509.CertificateSigningRequest, *, peer: str, now: dt.datetime) -> bytes:
        """Return the certificate of a device as PEM.

        Parameters
        ----------
        request
            Request that the device has made.
        peer
            Name in the certificate, by which the broker identifies the device.
        now
            The time.

        Raises
        ------
        InputError
            The request is for another name, or not signed by its own key.
        """
        if common_names(request.subject) != [peer] or not request.is_signature_valid:
            raise InputError(f'the certificate request is not one for "{peer}"; make it again with p2pfl identity')
        key = request.public_key()
        if not isinstance(key, ec.EllipticCurvePublicKey):
            raise InputError(f'the certificate request of "{peer}" has no P-256 key; make it again with p2pfl identity')
        ours = self.key.public_key()
        made = (
            begin_certificate(peer, key, ca=False, now=now, issuer=self.certificate.subject)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ours), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    def revocations(self, before: bytes | None, revoked: Sequence[x509.Certificate], *, now: dt.datetime) -> bytes:
        """Return the list of revoked certificates as PEM, which the broker reads.

        Parameters
        ----------
        before
            The list so far; its entries stay.
        revoked
            Certificates to add.
        now
            The time.

        Raises
        ------
        InputError
            The list so far cannot be used, or is not signed by this authority.
        """
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now - dt.timedelta(days=1))
            .next_update(now + dt.timedelta(days=365 * YEARS))
        )
        entries = {} if before is None else {each.serial_number: each for each in self._read_revoked(before)}
        for each in revoked:
            number = each.serial_number
            made = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
            entries.setdefault(number, made)
        for number in sorted(entries):
            builder = builder.add_revoked_certificate(entries[number])
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def _read_revoked(self, data: bytes) -> x509.CertificateRevocationList:
        """Read a list of revoked certificates."""
        try:
            revoked = x509.load_pem_x509_crl(data)
            if revoked.is_signature_valid(self.key.public_key()):
                return revoked
        except ValueError:
            pass
        raise InputError(
            "the list of revoked certificates of the fleet was not made by its authority; restore it from a backup"
        )


def _has_key_usage(certificate: x509.Certificate) -> bool:
    return any(isinstance(each.value, x509.KeyUsage) for each in certificate.extensions)


def fleet_name(folder: Path) -> str | None:
    """Return the name of the first experiment of a fleet; ``None`` if its authority is not made yet."""
    try:
        made = x509.load_pem_x509_certificate((folder / "ca.pem").read_bytes())
    except (OSError, ValueError):
        return None
    return next((each.removeprefix(NAME_PREFIX) for each in common_names(made.subject)), None)


def common_names(name: x509.Name) -> list[str]:
    """Return the common names in a subject."""
    return [str(each.value) for each in name.get_attributes_for_oid(NameOID.COMMON_NAME)]
