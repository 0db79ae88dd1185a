"""<source> of a disk and of firmware variables: the place of the data."""

from collections.abc import Mapping


def path(source: Mapping[str, str] | None) -> str | None:
    """Return the place in a source's attributes: a path, ``pool/volume`` or ``protocol:name``."""
    if source is None:
        return None
    if source.get("pool"):
        return f"{source['pool']}/{source.get('volume')}"
    if source.get("protocol"):
        return f"{source['protocol']}:{source.get('name')}"
    return source.get("file") or source.get("dev") or source.get("dir")
