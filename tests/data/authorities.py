"""Certificates of an authority that is made for a test."""

import datetime
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID
from saltvirt.ca.ca import NO_USAGE

_DAY = datetime.timedelta(days=1)


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _signed(key, by, names, extension, usage):
    now = datetime.datetime.now(datetime.timezone.utc)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(by.public_key())
    made = (
        x509.CertificateBuilder()
        .subject_name(_name(names[0]))
        .issuer_name(_name(names[1]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        # As RFC 5280 asks, which Python holds certificates to from 3.13 on.
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.KeyUsage(**{**NO_USAGE, usage: True}), critical=True)
        .add_extension(extension, critical=extension.oid == ExtensionOID.BASIC_CONSTRAINTS)
        .sign(by, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def of_address(address):
    """Return ``(authority, certificate, private key)`` as PEM, of a server at an address."""
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    is_ca = x509.BasicConstraints(ca=True, path_length=0)
    at = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    private = server.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return (
        _signed(authority, authority, ("ca", "ca"), is_ca, "key_cert_sign"),
        _signed(server, authority, ("server", "ca"), at, "digital_signature"),
        private.decode(),
    )
