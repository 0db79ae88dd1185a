"""
A small certificate authority: make it, read requests, sign certificates.

Source: RFC 5280; https://libvirt.org/kbase/tlscerts.html for what libvirt wants of a certificate.
"""

import ipaddress
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

# Keys that this CA makes, and keys that it signs.
PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey
MAX_CSR = 16 * 1024
UNIT = "salt-virt hypervisor"
# Hosts' clocks differ a little, so a certificate is valid from some minutes ago.
_SKEW = timedelta(minutes=5)
_USAGE = {
    "server": ExtendedKeyUsageOID.SERVER_AUTH,
    "client": ExtendedKeyUsageOID.CLIENT_AUTH,
}
NO_USAGE = dict.fromkeys(
    (
        "digital_signature",
        "content_commitment",
        "key_encipherment",
        "data_encipherment",
        "key_agreement",
        "key_cert_sign",
        "crl_sign",
        "encipher_only",
        "decipher_only",
    ),
    False,
)


class PkiError(ValueError):
    """A request or a certificate cannot be used; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """A CA's private key and certificate."""

    key: PrivateKey
    certificate: x509.Certificate

    @classmethod
    def from_pem(cls, key_pem: bytes, certificate_pem: bytes) -> "Authority":
        """Return the authority of two PEM texts; raise PkiError if they do not belong together."""
        try:
            # An adopted CA may have a key of any kind that signs.
            key: Any = serialization.load_pem_private_key(key_pem, password=None)
            certificate = x509.load_pem_x509_certificate(certificate_pem)
        except (ValueError, TypeError, UnsupportedAlgorithm) as exc:
            raise PkiError(f"the CA's key or certificate cannot be read: {exc}") from exc
        if _public_bytes(key.public_key()) != _public_bytes(certificate.public_key()):
            raise PkiError("the CA's key is not the key of its certificate")
        return cls(key=key, certificate=certificate)


def _public_bytes(key: Any) -> bytes:
    der: bytes = key.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    return der


def new_key(kind: str = "ecdsa") -> PrivateKey:
    """Return a private key: ECDSA P-256, or RSA 3072 for old GnuTLS peers."""
    if kind == "ecdsa":
        return ec.generate_private_key(ec.SECP256R1())
    if kind == "rsa":
        return rsa.generate_private_key(public_exponent=65537, key_size=3072)
    raise PkiError(f"key type {kind!r}; one of ecdsa, rsa")


def key_pem(key: PrivateKey) -> bytes:
    """Return a private key as PEM bytes; the caller must write them with mode 0600."""
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


def certificate_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM bytes."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def fingerprints(pem: bytes) -> list[str]:
    """Return the SHA-256 fingerprints of the certificates in PEM bytes; raise ValueError."""
    certificates = x509.load_pem_x509_certificates(pem)
    return [certificate.fingerprint(hashes.SHA256()).hex() for certificate in certificates]


def create(name: str, now: datetime, *, days: int = 3650, kind: str = "ecdsa") -> Authority:
    """Return a new :class:`Authority` that signs leaves only (path length 0)."""
    key = new_key(kind)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    usage = x509.KeyUsage(**{**NO_USAGE, "key_cert_sign": True, "crl_sign": True})
    builder = _begin_certificate(
        subject, subject, key.public_key(), now, now + timedelta(days=days)
    )
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(key=key, certificate=certificate)


def _begin_certificate(
    subject: x509.Name, issuer: x509.Name, public_key: PublicKey, now: datetime, until: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(_serial())
        .not_valid_before(now - _SKEW)
        .not_valid_after(until)
    )


def _serial() -> int:
    # 128 random bits, the first one set, so that all serials are of one length.
    return secrets.randbits(127) | 1 << 127


def read_request(pem: object) -> PublicKey:
    """
    Return the public key of a certificate request; nothing else in the request is ever used.

    pem
        PEM text, at most 16 KiB. Raises PkiError: no request, a bad signature, a weak key.
    """
    if not isinstance(pem, str) or len(pem) > MAX_CSR:
        raise PkiError(f"a request is PEM text of at most {MAX_CSR} characters")
    try:
        request = x509.load_pem_x509_csr(pem.encode())
        is_valid = request.is_signature_valid
        key = request.public_key()
    except Exception as exc:  # a parser may raise anything on hostile input
        raise PkiError(f"the request cannot be read: {type(exc).__name__}") from exc
    if not is_valid:
        raise PkiError("the request is not signed with its own key")
    return _refuse_weak_key(key)


def _refuse_weak_key(key: object) -> PublicKey:
    if isinstance(key, rsa.RSAPublicKey):
        if not 2048 <= key.key_size <= 8192:
            raise PkiError(f"the request's RSA key has {key.key_size} bits; 2048 to 8192")
        return key
    if isinstance(key, ec.EllipticCurvePublicKey):
        if not isinstance(key.curve, ec.SECP256R1 | ec.SECP384R1):
            raise PkiError(f"the request's curve is {key.curve.name}; secp256r1 or secp384r1")
        return key
    raise PkiError("the request's key is neither RSA nor ECDSA")


def subject(minion_id: str, organization: str | None = None) -> x509.Name:
    """
    Return a hypervisor's subject in its certificate.

    The unit comes first: ``OU=salt-virt hypervisor,*`` in libvirt's ``tls_allowed_dn_list`` admits
    the master's hypervisors, and no other certificate that an adopted CA ever signed.
    """
    names = [(NameOID.ORGANIZATIONAL_UNIT_NAME, UNIT), (NameOID.COMMON_NAME, minion_id)]
    if organization:
        names.insert(1, (NameOID.ORGANIZATION_NAME, organization))
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in names])


def sign(
    authority: Authority,
    public_key: PublicKey,
    *,
    minion_id: str,
    role: str,
    names: Iterable[str],
    addresses: Iterable[str],
    now: datetime,
    days: int,
    organization: str | None = None,
) -> x509.Certificate:
    """
    Return a leaf certificate.

    role
        ``server`` or ``client``.
    names, addresses
        DNS names and IP addresses for the subject alternative name.
    now, days
        An aware datetime, and for how many days the certificate is good; never longer than the CA.

    Raises PkiError if the CA has expired.
    """
    ca = authority.certificate
    if ca.not_valid_after_utc <= now:
        raise PkiError(
            f"the CA ({ca.subject.rfc4514_string()}) has expired at {ca.not_valid_after_utc}, and "
            "nothing that it signs is good; move the master's folder pki_dir/libvirt away and say "
            "again who is a hypervisor (virt.allow): new CAs are made"
        )
    until = min(now + timedelta(days=days), ca.not_valid_after_utc)
    subjects: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    subjects += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
    # ECDSA keys encipher nothing, yet libvirt 9.0 refuses a certificate without this bit.
    usage = {**NO_USAGE, "digital_signature": True, "key_encipherment": True}
    issuer_key = authority.key.public_key()
    return (
        _begin_certificate(subject(minion_id, organization), ca.subject, public_key, now, until)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(**usage), critical=True)
        .add_extension(x509.ExtendedKeyUsage([_USAGE[role]]), critical=False)
        .add_extension(x509.SubjectAlternativeName(subjects), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
        .add_extension(_authority_id(ca, issuer_key), critical=False)
        .sign(authority.key, hashes.SHA256())
    )


def _authority_id(ca: x509.Certificate, issuer_key: PublicKey) -> x509.AuthorityKeyIdentifier:
    try:
        identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:  # an adopted CA may have none
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key)
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
