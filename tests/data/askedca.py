"""Questions to the CA as hosts put them, and what is in its answers."""

from datetime import datetime, timezone

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from saltvirt.pki import answer, ca

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
GRAINS = {
    "fqdn": "hyper1.example.org",
    "host": "hyper1",
    "ipv4": ["127.0.0.1", "192.0.2.1"],
    "ipv6": ["::1", "fe80::1", "2001:db8::1"],
}


def request(key=None, name="anything", extensions=()):
    """Return a certificate request as PEM text."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    builder = x509.CertificateSigningRequestBuilder().subject_name(subject)
    for extension in extensions:
        builder = builder.add_extension(extension, critical=True)
    signed = builder.sign(key or ca.new_key(), hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def ask(place, minion_id="hyper1", wanted=None, **change):
    """Ask the CA as the external pillar does."""
    given_ = {"grains": GRAINS, "others": {}, "options": {}, "now": NOW, **change}
    if wanted is None:
        wanted = {"libvirt-server": request()}
    return answer.answer(place, minion_id, wanted, **given_)


def parsed(out, purpose="libvirt-server"):
    """Return a certificate of an answer."""
    return x509.load_pem_x509_certificate(out["certificates"][purpose].encode())


def subjects(certificate):
    """Return the names and addresses of a certificate."""
    san = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = san.get_values_for_type(x509.IPAddress)
    return san.get_values_for_type(x509.DNSName), list(map(str, addresses))
