"""Questions to the CA as hosts put them, and what is in its answers."""

from datetime import datetime, timezone

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import NameOID
from saltvirt.ca import answer, ca
from saltvirt.ca.authorities import Authorities

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


def ask(place, minion_id="hyper1", wanted=None, *, grains=GRAINS, others=(), guests=(), **change):
    """Ask the CAs as the external pillar does; ``others`` are the other hypervisors' grains."""
    given = {"options": {}, "now": NOW, **change}
    if wanted is None:
        wanted = {"libvirt-server": request()}
    host = answer.Host(
        id=minion_id, grains=grains, hypervisors=dict(others), minions=[*others, *guests]
    )
    return answer.answer(Authorities(place.folder), host, wanted, **given)


def parsed(out, purpose="libvirt-server"):
    """Return a certificate of an answer."""
    return x509.load_pem_x509_certificate(out.certificates[purpose].encode())


def subjects(certificate):
    """Return the names and addresses of a certificate."""
    san = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = san.get_values_for_type(x509.IPAddress)
    return san.get_values_for_type(x509.DNSName), list(map(str, addresses))
