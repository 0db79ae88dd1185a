"""<secret>: libvirt's entry for a password; its value is never in the XML."""

import xml.etree.ElementTree as ET
from dataclasses import dataclass

from saltvirt.xml import leaf, tag, yes_no

# The element that names the usage, by the kind of usage.
_NAMES = {"ceph": "name", "iscsi": "target"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    """
    The content of a <secret>: libvirt never returns a private one, and an ephemeral one ends.

    It is not declared: the name of an element in it depends on the kind of its usage.
    """

    kind: str
    usage: str
    description: str | None = None
    is_ephemeral: bool = False
    is_private: bool = True


def for_pool(name: str, auth_type: str, usage: str) -> Secret:
    """Return the secret of a pool that logs in by ``ceph`` or ``chap``."""
    kind = "ceph" if auth_type == "ceph" else "iscsi"
    words = f"Passphrase for {name} pool created by Salt"
    return Secret(kind=kind, usage=usage, description=words)


def build(secret: Secret) -> ET.Element:
    """Return the <secret>."""
    flags = {"ephemeral": yes_no(secret.is_ephemeral), "private": yes_no(secret.is_private)}
    usage = tag("usage", {"type": secret.kind}, tag(_NAMES[secret.kind], text=secret.usage))
    return tag("secret", flags, leaf("description", secret.description), usage)


def read(element: ET.Element) -> Secret:
    """Return the content of a <secret> of a pool."""
    usage = element.find("usage")
    kind = "ceph" if usage is None else usage.get("type", "ceph")
    return Secret(
        kind=kind,
        usage="" if usage is None else usage.findtext(_NAMES[kind], ""),
        description=element.findtext("description"),
        is_ephemeral=element.get("ephemeral") == "yes",
        is_private=element.get("private") == "yes",
    )
