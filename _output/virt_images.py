"""Outputter ``virt_images``: the cached images of each hypervisor."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)
_TITLES = ("HOST", "IMAGE", "KIND", "FILE", "DISK", "SYSTEM", "VMS", "SOURCE")
_LEGEND = "FILE: what its file takes; DISK: what guests see; m: a minion, c: cloud-init"


@_text.shows_mappings
def output(data, **_kwargs):
    """
    Return the table of an answer of ``salt-run virt.images``.

    CLI Example:

    .. code-block:: bash

        salt-run virt.images --out=virt_images
    """
    if "error" in data:
        return "\n".join(_text.wrapped(f"error: {data['error']}"))
    images_by_host = {host: data[host] for host in sorted(set(data) - {"unreachable", "failed"})}
    rows = [
        _row(host, digest, image)
        for host, images in images_by_host.items()
        for digest, image in sorted(images.items())
    ]
    lines = _text.table(_TITLES, rows, ("FILE", "DISK")) if rows else []
    lines += [f"{host}: no images" for host, images in images_by_host.items() if not images]
    return "\n".join([*lines, *_text.other_lines(data), *_text.wrapped(_LEGEND)])


def _row(host, digest, image):
    letters = "".join(
        letter for letter, key in (("m", "has_minion"), ("c", "has_cloud_init")) if image.get(key)
    )
    # A host may omit all fields but ``users``; present fields have the right type.
    system = "not seen" if image.get("os") is None else f"{image['os']} {letters}".strip()
    return (
        *(host, digest[:12], image.get("format")),
        *(image.get("file_bytes"), image.get("virtual_bytes"), system),
        *(len(image["users"]), image.get("source")),
    )
