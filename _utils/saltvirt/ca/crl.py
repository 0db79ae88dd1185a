"""Certificate revocation lists."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from saltvirt.ca.ca import Authority

# Long, because a list that has expired stops every connection: GnuTLS then trusts no peer.
_LIFE = timedelta(days=3650)


def build_crl(
    authority: Authority,
    revoked: Mapping[int, datetime],
    number: int,
    now: datetime,
) -> bytes:
    """
    Return a revocation list as PEM bytes.

    revoked
        ``{serial: datetime of the revocation}``.
    number
        Grows with every list.
    """
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(now - timedelta(minutes=5))
        .next_update(now + _LIFE)
        .add_extension(x509.CRLNumber(number), critical=False)
    )
    for serial, when in sorted(revoked.items()):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(when)
        builder = builder.add_revoked_certificate(entry.build())
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
