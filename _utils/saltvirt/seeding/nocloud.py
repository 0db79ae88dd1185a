"""
Build a NoCloud seed: an ISO in a qcow2 that cloud-init reads, made without mounting anything.

The private key is not in the user data, which all programs of the guest can read for ever; it
follows the file system, and the guest wipes it after reading.
Source: cloud-init, NoCloud data source; ECMA-119 (the volume size is in the descriptor).
"""

import io
import json
import struct
from collections.abc import Iterable, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from saltvirt.core import files
from saltvirt.core.errors import SeedError
from saltvirt.core.salt import lazyimport
from saltvirt.seeding import cloudconfig, firstboot
from saltvirt.seeding.seedmodel import Identity

_BITS = 12
_CLUSTER = 1 << _BITS
# Entries of 8 bytes in both levels of tables; a block of reference counts has 2 bytes for each.
_TABLE, _COUNTS = _CLUSTER // 8, _CLUSTER // 2
_HEADER = struct.Struct(">4sIQIIQIIQQIIQQQQII")
# Only this table refers to the cluster, so QEMU writes in place: wiping a key really removes it.
_COPIED = 1 << 63


def wrap_in_qcow2(data: bytes) -> bytes:
    """Return a fully allocated qcow2 image with these bytes as its disk, in blocks of 512."""
    clusters = -(-len(data) // _CLUSTER)
    tables = -(-clusters // _TABLE)
    # The blocks of reference counts count themselves, too.
    blocks = next(n for n in count(1) if n * _COUNTS >= 3 + n + tables + clusters)
    if tables > _TABLE or blocks > _TABLE:
        raise SeedError(f"the seed is too large: {len(data)} bytes")
    first_table, first_data = 3 + blocks, 3 + blocks + tables
    total = first_data + clusters
    header = _HEADER.pack(
        *(b"QFI\xfb", 3, 0, 0, _BITS, len(data), 0),
        # Tables of disk clusters, then of reference counts; no snapshots.
        *(tables, (2 + blocks) * _CLUSTER, _CLUSTER, 1, 0, 0),
        *(0, 0, 0, 4, _HEADER.size),
    )
    return b"".join(
        (
            _pad_to_cluster(header),
            _pad_to_cluster(_pack_numbers(_CLUSTER * (2 + number) for number in range(blocks))),
            struct.pack(f">{total}H", *[1] * total).ljust(blocks * _CLUSTER, b"\0"),
            _pad_to_cluster(
                _pack_numbers(
                    _COPIED | _CLUSTER * (first_table + number) for number in range(tables)
                )
            ),
            _pad_to_cluster(
                _pack_numbers(
                    _COPIED | _CLUSTER * (first_data + number) for number in range(clusters)
                )
            ),
            _pad_to_cluster(data),
        )
    )


def _pack_numbers(values: Iterable[int]) -> bytes:
    numbers = list(values)
    return struct.pack(f">{len(numbers)}Q", *numbers)


def _pad_to_cluster(data: bytes) -> bytes:
    return data + bytes(-len(data) % _CLUSTER)


pycdlib = lazyimport.OptionalModule("pycdlib")

LABEL = "cidata"
MISSING = (
    "the Python module 'pycdlib', which writes the seed, is missing on this host; "
    "install it with 'salt-pip install pycdlib', or give seed=False"
)


def refuse_if_impossible() -> None:
    """Raise SeedError if this host cannot write a seed."""
    if lazyimport.is_missing(pycdlib):
        raise SeedError(MISSING)


def _iso(texts: Mapping[str, str]) -> bytes:
    iso = pycdlib.PyCdlib()
    iso.new(interchange_level=3, joliet=3, rock_ridge="1.09", vol_ident=LABEL)
    for name, text in texts.items():
        data = text.encode()
        short = name.upper().replace("-", "_")
        plain = f"/{short}.;1"
        iso.add_fp(io.BytesIO(data), len(data), plain, rr_name=name, joliet_path=f"/{name}")
    out = io.BytesIO()
    iso.write_fp(out)
    iso.close()
    data = out.getvalue()
    return data + bytes(-len(data) % firstboot.BLOCK)


def _files(identity: Identity, instance: str, first_block: int, install: object) -> dict[str, str]:
    script = firstboot.first_boot(
        identity.id,
        yaml.safe_dump(identity.config, default_flow_style=False),
        identity.public_key,
        identity.master_key,
        LABEL,
        first_block,
        is_another=identity.is_another,
    )
    identity_data: dict[str, Any] = {
        "preserve_hostname": False,
        "hostname": identity.id.split(".")[0],
        "fqdn": identity.id,
        "bootcmd": [["cloud-init-per", "instance", "salt-virt", "sh", "-c", script]],
    }
    if identity.ssh_keys:
        identity_data["ssh_authorized_keys"] = list(identity.ssh_keys)
    if install:
        identity_data["runcmd"] = [["sh", "-c", firstboot.install()]]
    meta = {
        "instance-id": instance,
        "local-hostname": identity.id,
        # "local": cloud-init needs the identity before the network is up and the minion starts.
        "dsmode": "local",
    }
    cloud = identity.cloud_init
    outside = cloudconfig.find_gateways_outside(cloud.network)
    if outside:
        script = firstboot.gateways_on_link(outside)
        identity_data["bootcmd"].append(
            ["cloud-init-per", "instance", "salt-virt-gateway", "sh", "-c", script]
        )
    if not any(data.get("bootcmd") for data in cloud.all_data):
        identity_data["bootcmd"].append(["sh", "-c", firstboot.image_bootcmd()])
    user_data = cloudconfig.merge(identity_data, *cloud.user_data)
    vendor_lists = cloudconfig.lists_in_both(cloud.vendor_data or {}, user_data)
    out = {
        "meta-data": json.dumps(meta, indent=1),
        "user-data": _cloud_config_text(
            cloudconfig.merge(identity_data, vendor_lists, *cloud.user_data)
        ),
    }
    if cloud.vendor_data:
        out["vendor-data"] = _cloud_config_text(cloud.vendor_data)
    if cloud.network:
        out["network-config"] = json.dumps(cloud.network, indent=1)
    return out


def _cloud_config_text(config: object) -> str:
    try:
        # JSON is YAML, and needs no quoting rules.
        text = json.dumps(config, indent=1)
    except TypeError:
        # JSON lacks dates and binary data, which YAML may have read from the operator's text.
        text = yaml.safe_dump(config, width=float("inf"))
    return f"#cloud-config\n{text}"


def content(identity: Identity, instance: str, *, install: object) -> bytes:
    """
    Return the content of a seed's disk.

    instance
        What tells cloud-init one guest from another: the domain's UUID.
    install
        Let the guest install a minion if it has none.
    """
    refuse_if_impossible()
    secret = (identity.private_key or "").encode()
    if len(secret) > firstboot.SECRET_BYTES:
        raise SeedError(f"priv_key: {len(secret)} bytes are too many for a key")
    # The script contains the key's position, which depends on the script's length: two passes.
    first_block = len(_iso(_files(identity, instance, 999999, install))) // firstboot.BLOCK
    image = _iso(_files(identity, instance, first_block, install))
    image = image.ljust(first_block * firstboot.BLOCK, b"\0")
    if len(image) != first_block * firstboot.BLOCK:
        raise SeedError("the seed's size did not settle")
    return image + secret.ljust(firstboot.SECRET_BYTES, b"\0")


def build(path: str | Path, identity: Identity, instance: str, *, install: object) -> None:
    """
    Write a seed, a qcow2 readable by its owner only; the caller syncs it to the disk.

    path
        The seed's path. An existing file is overwritten, and must be the caller's own. On failure,
        the caller removes the file.
    instance, install
        As :func:`content` has them.
    """
    data = wrap_in_qcow2(content(identity, instance, install=install))
    try:
        with open(path, "wb", opener=files.private) as handle:
            handle.write(data)
    except OSError as exc:
        raise SeedError(f"cannot write seed {path}: {exc.strerror}") from exc
