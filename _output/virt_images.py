"""Outputter ``virt_images``: the cached images of each hypervisor."""

import importlib.util
from pathlib import Path

_SPEC = importlib.util.spec_from_file_location(
    "virt_text", Path(__file__).with_name("virt_text.py")
)
_text = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_text)
_ROW = "{:<12} {:<5} {:>7} {:>7}  {:<10} {:<6} {}"
_LEGEND = "MiB of the file, DISK: MiB that a guest sees; HAS m: a minion, c: cloud-init"


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
    lines = [_ROW.format("IMAGE", "KIND", "MiB", "DISK", "HAS", "VMS", "SOURCE")]
    for host in sorted(set(data) - {"unreachable", "failed"}):
        lines.append(host)
        lines += [_row(digest, image) for digest, image in sorted(data[host].items())]
        if not data[host]:
            lines.append("  no images")
    lines += [f"{host} {_text.NO_ANSWER}" for host in data.get("unreachable", ())]
    for host, reason in sorted(data.get("failed", {}).items()):
        lines += _text.wrapped(f"{host}: {reason}", next_indent="  ")
    lines.append(_LEGEND)
    return "\n".join(lines)


def _row(digest, image):
    features = "".join(
        letter if image.get(key) else "-"
        for letter, key in (("m", "has_minion"), ("c", "has_cloud_init"))
    )
    # A host may omit all fields but ``users``; present fields have the right type.
    system = "not seen" if image.get("os") is None else f"{image['os'][:7]} {features}"
    sizes = [(image.get(key) or 0) // 2**20 for key in ("file_bytes", "virtual_bytes")]
    kind, source = image.get("format") or "-", image.get("source") or "-"
    return _ROW.format(digest[:12], kind, *sizes, system, len(image["users"]), source)
