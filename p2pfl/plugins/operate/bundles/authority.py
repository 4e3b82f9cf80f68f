"""Authority of a fleet: signs the certificates with which its devices log in at the broker."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from p2pfl.core.errors import InputError
from p2pfl.network.transport.hardened import YEARS, begin_certificate
from p2pfl.privacy.keys.key_requests import private_pem, save

NAME_PREFIX = "p2pfl fleet "
"""Start of the common name of an authority, before the name of the first experiment of its fleet."""

FORMER = "former"
"""Folder, in that of an authority, with the one before."""


@dataclass(frozen=True)
class Authority:
    """Key and certificate of an authority.

    Attributes
    ----------
    key
        Its private key, which stays with the operator.
    certificate
        Certificate authority that the broker trusts.
    former
        The authority before this one, which brokers and devices trust as well until the operator ends that.
    """

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate
    former: Authority | None = None

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
        former = cls.open(folder / FORMER, name=name, now=now) if (folder / FORMER / "ca.pem").exists() else None
        if former and former.certificate == made and isinstance(key, ec.EllipticCurvePrivateKey):  # after a crash
            former, made = (None, made) if former.key.public_key() == key.public_key() else (former, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or (made and made.public_key() != key.public_key()):
            raise InputError(f"{private} and {public} are not a key and its certificate; restore both from a backup")
        if made is None or not _has_key_usage(made):  # an earlier release made it: the same key signs another
            own = begin_certificate(f"{NAME_PREFIX}{fleet_name(folder) or name}", key.public_key(), ca=True, now=now)
            made = own.sign(key, hashes.SHA256())
            save(public, made.public_bytes(serialization.Encoding.PEM))
        return cls(key, made, former)

    @classmethod
    def replace(cls, folder: Path, *, name: str, now: dt.datetime) -> Self:
        """Make another authority, which signs from now on; the present one stays trusted.

        It has the same name, so what the former one signs for its key counts as no further authority in between.

        Raises
        ------
        InputError
            The authority before the present one is still trusted, or a file cannot be used.
        StorageError
            The folder cannot be written.
        """
        if cls.open(folder, name=name, now=now).former is not None:
            raise InputError(
                f"{folder / FORMER} is still trusted, so this would cut off devices; call --revoke authority first"
            )
        for file in ("ca.key", "ca.pem"):
            save(folder / FORMER / file, (folder / file).read_bytes(), mode=0o600)
        save(folder / "ca.key", private_pem(ec.generate_private_key(ec.SECP256R1())), mode=0o600)
        return cls.open(folder, name=name, now=now)

    @property
    def trusted(self) -> bytes:
        """Certificates that brokers and devices trust, as PEM."""
        both = [self, *([] if self.former is None else [self.former])]
        return b"".join(each.certificate.public_bytes(serialization.Encoding.PEM) for each in both)

    @property
    def chain(self) -> list[x509.Certificate]:
        """Certificates that a broker shows after its own, for devices that trust the former authority alone."""
        if self.former is None:
            return []
        begins = self.certificate.not_valid_before_utc + dt.timedelta(days=1)
        [name] = common_names(self.certificate.subject)
        theirs = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.former.key.public_key())
        built = begin_certificate(name, self.key.public_key(), ca=True, now=begins)
        return [built.add_extension(theirs, critical=False).sign(self.former.key, hashes.SHA256())]

    def issued(self, certificate: x509.Certificate) -> bool:
        """Return whether this authority, and not the former one, has signed a certificate."""
        try:
            certificate.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return False
        return True

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
        return self.certify(key, peer=peer, now=now)

    def certify(self, key: ec.EllipticCurvePublicKey, *, peer: str, now: dt.datetime) -> bytes:
        """Return a certificate of a key as PEM; see :meth:`sign`."""
        ours = self.key.public_key()
        made = (
            begin_certificate(peer, key, ca=False, now=now, issuer=self.certificate.subject)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ours), critical=False)
            .sign(self.key, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    def revocations(self, before: bytes | None, revoked: Sequence[x509.Certificate], *, now: dt.datetime) -> bytes:
        """Return the lists of revoked certificates as PEM, which the broker reads: one of each trusted authority.

        Parameters
        ----------
        before
            The lists so far; their entries stay.
        revoked
            Certificates to add.
        now
            The time.

        Raises
        ------
        InputError
            The list so far cannot be used, or is not signed by this authority.
        """
        entries = self.entries(before)
        for each in revoked:
            number = each.serial_number
            made = x509.RevokedCertificateBuilder().serial_number(number).revocation_date(now).build()
            entries.setdefault(number, made)
        both = [self, *([] if self.former is None else [self.former])]
        return b"".join(each._list(entries, now=now) for each in both)  # noqa: SLF001 (of this class)

    def _list(self, entries: Mapping[int, x509.RevokedCertificate], *, now: dt.datetime) -> bytes:
        ours = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.certificate.subject)
            .last_update(now - dt.timedelta(days=1))
            .next_update(now + dt.timedelta(days=365 * YEARS))
            .add_extension(ours, critical=False)
        )
        for number in sorted(entries):
            builder = builder.add_revoked_certificate(entries[number])
        return builder.sign(self.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    def entries(self, lists: bytes | None) -> dict[int, x509.RevokedCertificate]:
        """Return the entries of lists of revoked certificates, which all have the same, by serial number.

        Raises
        ------
        InputError
            The first list cannot be used, or is not signed by this authority or the former one.
        """
        if lists is None:
            return {}
        try:
            revoked = x509.load_pem_x509_crl(lists)
            for each in (self, self.former):
                if each is not None and revoked.is_signature_valid(each.key.public_key()):
                    return {entry.serial_number: entry for entry in revoked}
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
