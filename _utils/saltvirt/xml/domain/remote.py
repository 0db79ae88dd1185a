"""A medium that QEMU itself fetches: a URL as the <source> of a cdrom, and their comparison."""

from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from saltvirt.core.errors import BadArgument
from saltvirt.core.model import RemoteSource

# The protocols of QEMU's drivers, and the default ports that libvirt writes.
PORTS = {"http": 80, "https": 443, "ftp": 21, "ftps": 990, "tftp": 69}


def is_url(text: object) -> bool:
    """Return whether a source is a URL; a path is not."""
    return isinstance(text, str) and "://" in text and not text.startswith("/")


def from_url(argument: str, url: str) -> RemoteSource:
    """Return the source for a URL; refuse one that QEMU cannot fetch, or that has a secret."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError as exc:
        raise BadArgument(argument, f"its source_file is not a URL: {exc}") from None
    if parts.scheme not in PORTS:
        raise BadArgument(
            argument,
            f"its source_file is at {parts.scheme}://; one of {', '.join(PORTS)}, or a path",
        )
    if parts.username or parts.password:
        raise BadArgument(
            argument,
            "its source_file has a user or a password, which readers of the VM's XML would see",
        )
    if not host or not parts.path.strip("/"):
        raise BadArgument(argument, "its source_file lacks a host or a path")
    source = {"protocol": parts.scheme, "name": parts.path}
    if parts.query:
        source["query"] = parts.query
    server = {"name": host, **({"port": str(port)} if port else {})}
    return RemoteSource(type="network", source=source, hosts=(server,))


def is_same_source(
    remote_source: RemoteSource, source: Mapping[str, str], hosts: Iterable[Mapping[str, str]]
) -> bool:
    """Return whether a <source> is that of a URL, also after libvirt has added the port."""
    return _comparable_source(remote_source.source, remote_source.hosts) == _comparable_source(
        source, hosts
    )


def _comparable_source(
    source: Mapping[str, str], hosts: Iterable[Mapping[str, str]]
) -> tuple[object, ...]:
    protocol = source.get("protocol", "")
    servers = [(host.get("name"), host.get("port") or str(PORTS.get(protocol))) for host in hosts]
    return protocol, source.get("name", "").lstrip("/"), source.get("query") or "", servers
