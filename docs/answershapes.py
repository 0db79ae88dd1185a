"""
The shape of each runner function's answer, and the page of the reference that shows it.

A shape is ``str``, ``int``, ``float`` (also a whole number), ``bool``, ``None``, ``ANY``, a list
with the shape of its elements, a mapping, or a tuple of alternatives. A key of a mapping in
capitals, such as ``HOST``, stands for any number of keys, a key that ends in ``?`` may be left out,
and all others are always there. ``tests/unit/entry/test_runners_answershapes.py`` compares the
table with answers that the lab has recorded, and ``tests/cloud/test_examples.py`` with new ones.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from reference import heading

ANY = object()
TEXT_OR_NULL, NUMBER_OR_NULL = (str, None), (int, None)
# Besides the answers of hosts: those without one, and what is known of these.
BESIDE = {
    "unreachable?": [str],
    "failed?": {"HOST": str},
    "duplicates?": {"NAME": [str]},
    "last_seen?": {"HOST": [str]},
}
# What a dry run says of each host.
ROWS = {
    "HOST": {
        **{"fits": bool, "score": (float, None), "reasons": [str], "chosen?": bool, "vm?": str},
        "warnings?": [str],
    }
}
PLANNED_DISK = {
    **{"name": str, "target": str, "device": str, "path": TEXT_OR_NULL, "format": TEXT_OR_NULL},
    **{"size_mib": NUMBER_OR_NULL, "image": TEXT_OR_NULL, "made": TEXT_OR_NULL},
    "base": TEXT_OR_NULL,
}
PLANNED_NIC = {
    **{"name": str, "type": str, "source": TEXT_OR_NULL, "model": str, "mac": str},
}
PLANNED_SEED = {
    **{"method": str, "install": TEXT_OR_NULL, "install_from": [str], "os": TEXT_OR_NULL},
    **{"why": str, "warnings": [str]},
}
PLAN_OF_CLONE = {
    **{"source": str, "name": str, "domain_type": str, "arch": TEXT_OR_NULL, "vcpus": int},
    **{"memory_mib": int, "disks": [PLANNED_DISK], "nics": [PLANNED_NIC], "files": [str]},
    **{"seed": (PLANNED_SEED, None), "to_fetch": [str], "start": bool, "autostart": bool},
    **{"xml": TEXT_OR_NULL, "warnings": [str]},
}
FINDING = {"check": str, "where": str, "what": str, "fix": str}
SEVERAL = {
    "vms": {"NAME": {"host": TEXT_OR_NULL, "outcome": ANY, "error": TEXT_OR_NULL}},
    **BESIDE,
}
ROOM = {"used": int, "promised": int, "free_to_promise": int, "limit": int}
VERDICT = {
    "findings": NUMBER_OR_NULL,
    "hints": NUMBER_OR_NULL,
    "by_check": ({"CHECK": int}, None),
    "first": (FINDING, None),
    "error": TEXT_OR_NULL,
}
# The file of a disk, with keys of Salt 3006; "backing file" has the same of the file below.
DISK = {"KEY": ANY}
NIC = {"KEY": ANY}
GRAPHICS = {"autoport": str, "keymap": str, "listen": str, "port": str, "type": str, "KEY": str}
LOADER = {"path": str, "KEY": str}
VM = {
    **{"cpu": int, "cputime": int, "maxMem": int, "mem": int, "state": str, "uuid": str},
    **{"disks": {"TARGET": DISK}, "nics": {"MAC": NIC}, "graphics": GRAPHICS, "loader": LOADER},
    **{"on_crash": str, "on_poweroff": str, "on_reboot": str},
}
# In answers about all VMs, each is as the call's ``fields`` say.
SHOWN_VM = {f"{key}?": shape for key, shape in VM.items()}
SNAPSHOT = {"name": str, "created": str, "running": bool, "current": bool, "external?": ANY}
FACTS_OF_VM = {
    **{"state": str, "vcpus": int, "memory_mib": int, "affinity": [str], "anti_affinity": [str]},
    "uuid?": str,
}
# With ``fields`` a host has only these.
HOST_INFO = {
    "maintenance?": bool,
    "tags?": {"TAG": str},
    "vms?": {"NAME": FACTS_OF_VM},
    "kept?": {"NAME": str},
    "building?": [str],
    "coming?": {"NAME": ANY},
    "unfinished?": [str],
    "unreadable?": {"NAME": str},
    "cpu?": {
        **{"threads": int, "model": TEXT_OR_NULL, "vendor": TEXT_OR_NULL, "arch": str},
        **{"vcpus_limit": int, "vcpus_committed": int, "features": {"TYPE": [str]}},
    },
    "memory?": {"total_mib": int, "free_mib": int, "limit_mib": int, "committed_mib": int},
    "storage?": {
        "images": {"path": str, "total_mib": int, "free_mib": int},
        "pools": {"POOL": ANY},
        "limit_mib": int,
        "committed_mib": int,
    },
    "bridges?": [str],
    "links?": [str],
    "networks?": {"NETWORK": {"active": bool, "bridge": TEXT_OR_NULL, "forward?": str}},
    "profiles?": {"nic": {"PROFILE": ANY}, "disk": {"PROFILE": ANY}},
    "domain_types?": {"default": TEXT_OR_NULL, "usable": [str], "why": str},
    "machines?": {"ARCH": {"versions": {"FAMILY": [str]}, "names": [str]}},
    "archs?": [str],
    "versions?": {"libvirt": str, "qemu": str},
    "stocks?": ({"STOCK": {"limit_mib": int, "committed_mib": int}}, None),
}
NEW_VM = {
    **{"name": str, "host": str, "minion?": TEXT_OR_NULL, "seconds?": (float, None)},
    **{"addresses?": [str], "addresses_from?": str, "login?": TEXT_OR_NULL, "warnings?": [str]},
    "cell?": str,
}


def _of_vm(answer: Any) -> tuple[Any, ...]:
    """Return the shape of a command on VMs: by host and name, or of several VMs."""
    return ({"HOST": {"NAME": answer}}, SEVERAL)


def _of_device(more: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the shape of a command on one device, with what it has besides the others."""
    return _of_vm({"outcome": str, "device": str, "restart": bool, "diff?": ANY, **more})


OUTCOME = _of_vm(str)
MOVED = {"NAME": str}
PURGED = {
    **{"removed": [str], "trashed": [str], "left": {"FILE": str}, "lost": [str]},
    **{"entry": TEXT_OR_NULL, "until": TEXT_OR_NULL, "can_undo": bool, "undo": TEXT_OR_NULL},
}
RUNNERS: Mapping[str, Any] = {
    # VMs.
    "virt.init": (NEW_VM, ROWS),
    "virt.init_many": {
        **{"built?": {"NAME": str}, "exists": {"NAME": str}, "failed": {"NAME": str}},
        **{"plan?": {"NAME": str}, "warnings?": {"NAME": [str]}, "seconds?": {"NAME": float}},
        **{"purged?": {"NAME": str}, "left?": {"NAME": str}, "helps?": [str]},
    },
    "virt.clone": (NEW_VM, {"HOST": PLAN_OF_CLONE}),
    **dict.fromkeys(
        (
            *("virt.start", "virt.stop", "virt.force_off", "virt.shutdown", "virt.reset"),
            *("virt.pause", "virt.resume", "virt.setmem", "virt.setvcpus", "virt.set_autostart"),
            *("virt.hold", "virt.reboot", "virt.ctrl_alt_del", "virt.migrate_cancel"),
            *("virt.migrate_start_postcopy", "virt.undefine"),
        ),
        OUTCOME,
    ),
    "virt.purge": {"HOST": {"NAME": str}, "details?": {"NAME": PURGED}},
    "virt.undo": {
        **{"name": str, "host": str, "uuid": str, "files": [str], "autostart": bool},
        **{"lost": [str], "has_key": bool},
    },
    "virt.rename": {"HOST": {"NAME": str}},
    "virt.disk_add": _of_device({"file": TEXT_OR_NULL, "made": bool}),
    "virt.disk_grow": _of_device({"file": TEXT_OR_NULL, "bytes_before": int, "bytes": int}),
    "virt.disk_remove": _of_device(
        {"file": TEXT_OR_NULL, "trash": TEXT_OR_NULL, "remove": TEXT_OR_NULL}
    ),
    "virt.move_disk": _of_device(
        {"file": str, "old": str, "live": bool, "bytes": int, "trash": TEXT_OR_NULL}
    ),
    **dict.fromkeys(("virt.nic_add", "virt.nic_remove"), _of_device({})),
    **dict.fromkeys(("virt.insert", "virt.eject"), _of_device({"file": TEXT_OR_NULL})),
    "virt.update": _of_vm({"definition": ANY, "KEY": ANY}),
    "virt.snapshot": _of_vm(({"name": str}, str)),
    **dict.fromkeys(("virt.list_snapshots", "virt.snapshots"), _of_vm([SNAPSHOT])),
    "virt.delete_snapshots": {
        "HOST": ({"available": {"NAME": ([SNAPSHOT], str)}, "deleted": {"SNAPSHOT": ANY}}, str)
    },
    **dict.fromkeys(
        ("virt.revert_snapshot", "virt.revert"),
        {"HOST": ({"reverted": str, "deleted": ([str], str), "warnings?": [str]}, str)},
    ),
    "virt.vm_info": {
        "HOST": {
            "NAME": {
                **VM,
                **{"autostart?": bool, "machine?": TEXT_OR_NULL, "snapshots?": [str]},
                **{"affinity?": [str], "anti_affinity?": [str], "hold?": bool},
                **{"created?": NUMBER_OR_NULL, "uptime_s?": NUMBER_OR_NULL, "pending?": [str]},
                **{"addresses?": [str], "addresses_from?": TEXT_OR_NULL, "login?": TEXT_OR_NULL},
                "ssh_user?": TEXT_OR_NULL,
                "KEY": ANY,
            }
        }
    },
    "virt.vm_state": _of_vm(str),
    "virt.console_log": str,
    "virt.get_xml": str,
    "virt.get_disks": _of_vm({"TARGET": DISK}),
    "virt.get_nics": _of_vm({"MAC": NIC}),
    "virt.get_macs": _of_vm([str]),
    "virt.get_graphics": _of_vm(GRAPHICS),
    "virt.get_loader": _of_vm(LOADER),
    "virt.vm_cputime": _of_vm({"cputime": int, "cputime_percent": int}),
    "virt.vm_netstats": _of_vm(
        {
            **{"rx_bytes": int, "rx_packets": int, "rx_errs": int, "rx_drop": int},
            **{"tx_bytes": int, "tx_packets": int, "tx_errs": int, "tx_drop": int},
        }
    ),
    "virt.vm_diskstats": _of_vm(
        {"rd_req": int, "rd_bytes": int, "wr_req": int, "wr_bytes": int, "errs": int}
    ),
    # A part that the guest does not tell is null, for the reason in "unavailable".
    "virt.guest_info": _of_vm(
        {
            **{"agent": TEXT_OR_NULL, "hostname": TEXT_OR_NULL, "unavailable": {"PART": str}},
            "os": ({"KEY": TEXT_OR_NULL}, None),
            "timezone": ({"name": TEXT_OR_NULL, "offset_s": NUMBER_OR_NULL}, None),
            "users": (
                [{"name": TEXT_OR_NULL, "domain": TEXT_OR_NULL, "login_s": (float, None)}],
                None,
            ),
            "filesystems": (
                [
                    {
                        **{"name": TEXT_OR_NULL, "mountpoint": TEXT_OR_NULL, "type": TEXT_OR_NULL},
                        **{"total_bytes": NUMBER_OR_NULL, "used_bytes": NUMBER_OR_NULL},
                    }
                ],
                None,
            ),
            "interfaces": (
                [
                    {
                        "name": TEXT_OR_NULL,
                        "mac": TEXT_OR_NULL,
                        "addresses": [{"address": TEXT_OR_NULL, "prefix": NUMBER_OR_NULL}],
                    }
                ],
                None,
            ),
        }
    ),
    "virt.guest_exec": _of_vm(
        (
            {
                **{"exit_code": NUMBER_OR_NULL, "signal": NUMBER_OR_NULL, "stdout": str},
                **{"stderr": str, "truncated": bool},
            },
            str,
        )
    ),
    # The cloud.
    "virt.list": {"HOST": {"STATE": [str]}, **BESIDE},
    "virt.query": {
        "HOST": {
            **{"freecpu": int, "freemem": float, "node_info": {"KEY": ANY}},
            "vm_info": {"NAME": SHOWN_VM},
        },
        **BESIDE,
    },
    **dict.fromkeys(("virt.host_info", "virt.hyper_info"), {"HOST": HOST_INFO, **BESIDE}),
    **dict.fromkeys(("virt.next_host", "virt.next_hyper"), str),
    "virt.find": {
        "NAME": {
            **{"hosts": {"HOST": TEXT_OR_NULL}, "traces": [str], "may_have": {"HOST": str}},
            **{"order?": TEXT_OR_NULL, "orders?": {"CELL": TEXT_OR_NULL}},
            "failed?": {"CELL": str},
        }
    },
    "virt.cell_job": {"state": str, "answer": ANY},
    "virt.status": {
        "at": str,
        "hosts": {
            **{"allowed": int, "answering": int, "maintenance": [str], "without_key": [str]},
            "silent": [
                {"host": str, "since": TEXT_OR_NULL, "silent_s": NUMBER_OR_NULL, "last_seen": int}
            ],
            "failed": [{"host": str, "reason": str, "last_seen": int}],
            "shut_out": [{"host": str, "last_seen": int}],
        },
        "vms": {"total": int, "by_state": {"STATE": int}, "coming": int, "last_seen": int},
        "room": {"cpus": ROOM, "memory_mib": ROOM, "disk_mib": ROOM},
        "checks": ({"doctor": VERDICT, "audit": VERDICT, "setup_check": VERDICT}, None),
        "certificates": [{"host": TEXT_OR_NULL, "certificate": str, "days_left": int, "ends": str}],
        "restart": [{"vm": str, "host": str, "changes": [str]}],
        "unfinished": [
            {
                **{"vm": str, "host": TEXT_OR_NULL, "what": str, "phase": TEXT_OR_NULL},
                "since": TEXT_OR_NULL,
            }
        ],
        "at_work": [str],
        "keys_waiting": [str],
    },
    # Moves and hosts.
    "virt.migrate": (
        {
            **{"name": str, "from": str, "to": str, "removed": [str], "total_ms?": int},
            **{"downtime_ms?": int, "memory_bytes?": int, "disk_bytes?": int, "warning?": str},
        },
        # With dry_run=True.
        {
            **{"name": str, "from": str, "to": str, "state": str, "memory_mib": int},
            **{"disks": {"TARGET": ANY}, "warning?": str},
        },
    ),
    "virt.migrate_status": _of_vm({"FIGURE": int}),
    "virt.settle": {"settled": {"NAME": str}, **BESIDE},
    "virt.maintenance": {"HOST": bool},
    # "moves" are those of a dry run.
    "virt.evacuate": {
        **{"host": str, "moved?": MOVED, "moves?": MOVED, "stays": {"NAME": str}},
        **{"failed?": {"NAME": str}, "gone?": [str], "warnings": {"NAME": str}},
    },
    "virt.restore": {
        **{"host": str, "moved?": MOVED, "moves?": MOVED, "failed": {"NAME": str}, "gone": [str]},
        **{"elsewhere": MOVED, "warnings?": {"NAME": str}},
    },
    "virt.rebalance": {
        "imbalance": float,
        "moves": [{"name": str, "from": str, "to": str, "gain": float}],
        "stays": {"NAME": str},
        **BESIDE,
    },
    "virt.host_lost": {
        **{"host": str, "state": str, "moves": {"NAME": str}, "unasked?": {"HOST": str}},
        "vms": {
            "NAME": {
                **{"cpu": NUMBER_OR_NULL, "mem_mib": NUMBER_OR_NULL, "open": [str]},
                **{"shared_disks": {"PATH": [str]}, "also_on": [str]},
            }
        },
        "steps": [{"step": str, "commands": [str]}],
    },
    "virt.allow": (
        {"allowed": [str], "revoked?": {"HOST": [str]}, "told?": {"HOST": str}},
        {
            "hypervisors": {"ID": {"by": str, "fingerprint": TEXT_OR_NULL}},
            **{"disallowed": [str], "without_key?": [str], "waiting?": {"ID": TEXT_OR_NULL}},
            "candidates?": {"ID": {"why": str, "vm_on": [str], "fingerprint": TEXT_OR_NULL}},
            **{"allow_them?": str, "others?": {"ID": TEXT_OR_NULL}, "more_others?": int},
            "odd_ids?": {"ID": str},
        },
    ),
    "virt.disallow": {
        **{"disallowed": [str], "revoked": [str], "told": {"HOST": str}},
        "last_seen?": {"HOST": [str]},
    },
    "virt.authorize": {"name": str, "host": str, "until": str},
    "virt.unauthorize": bool,
    # Checks.
    "virt.audit": {"findings": [FINDING], "checked": [str]},
    "virt.setup_check": {"findings": [{**FINDING, "level": str}], "checked": [str], "ready?": str},
    "virt.doctor": {
        "findings": [{**FINDING, "subject": str}],
        **{"checked": [str], "mended": [str], "failed?": [str], "ready?": str},
    },
    "virt.help": (
        {
            "tasks": [
                {"task": str, "commands": [{"name": str, "on": str, "changes": bool, "does": str}]}
            ]
        },
        {
            "command": {
                **{"name": str, "also": [str], "usage": str, "on": str, "changes": bool},
                **{"does": str, "arguments": {"ARGUMENT": str}, "more": [str]},
                **{"examples": [str], "undo": TEXT_OR_NULL},
            },
            "related": [str],
        },
    ),
    # Files and images.
    "virt.trash": {
        "HOST": {
            "ENTRY": {
                **{"vm": str, "uuid": TEXT_OR_NULL, "since": str, "until": str},
                **{"why": str, "bytes": int, "files": [str], "volumes": [str]},
                **{"definition": TEXT_OR_NULL, "away": [str], "undo": str},
            }
        },
        **BESIDE,
    },
    "virt.trash_restore": {"HOST": {"files": [str], "definition": TEXT_OR_NULL}},
    "virt.trash_empty": {"HOST": {"ENTRY": int}, **BESIDE},
    "virt.trash_put": {"HOST": {"entry": str, "undo": str}},
    **dict.fromkeys(
        ("virt.volume_resize", "virt.volume_upload"),
        {"HOST": bool},
    ),
    # A text with dry_run=True.
    **dict.fromkeys(("virt.volume_delete", "virt.volume_wipe"), {"HOST": (bool, str)}),
    "virt.images": {
        "HOST": {
            "DIGEST": {
                **{"source": TEXT_OR_NULL, "format": TEXT_OR_NULL, "users": [str]},
                **{"virtual_bytes": NUMBER_OR_NULL, "file_bytes": NUMBER_OR_NULL},
                **{"os": TEXT_OR_NULL, "has_minion": (bool, None), "has_cloud_init": (bool, None)},
                "KEY": ANY,
            }
        },
        **BESIDE,
    },
    "virt.image_pull": {"HOST": str},
    "virt.image_prune": {"HOST": {"DIGEST": int}, **BESIDE},
    "virt.image_build": {
        "HOST": {
            **{"path": str, "digest": str, "os": TEXT_OR_NULL},
            **{"has_minion": bool, "has_cloud_init": bool},
        }
    },
    "virt_image.minion_packages": (
        {"folder": str, "kind": str, "version": str, "fetched": [str], "kept": [str]},
        {"folder": str, "removed": [str]},
    ),
    # Certificates.
    "virt_pki.list": [
        {
            **{"host": str, "purpose": str, "serial": str, "not_after": str},
            **{"signer": str, "days_left": int, "state": str},
        }
    ],
    "virt_pki.renew": {"HOST": str},
    "virt_pki.revoke": {
        **{"revoked": [str], "told": {"HOST": str}, "disallowed?": [str]},
        "last_seen?": {"HOST": [str]},
    },
    "virt_pki.rotate_ca": {"rotated": [str]},
    "virt_pki.export": str,
    "virt_pki.import": str,
}
# Answers with texts, numbers or lists in other forms than the rule has: they are Salt 3006's.
ODD = {
    "virt.query": "as `vm_info`; `freecpu` and `freemem` are what running VMs leave, and may be "
    "negative; `node_info` has the keys of Salt 3006",
    "virt.vm_info": "`graphics` and `loader` have the text `None` for what is not set, and ports "
    "as texts; the facts of a disk have keys with spaces, such as `virtual size`",
    "virt.get_graphics": "the text `None` for what is not set, and ports as texts",
    "virt.get_loader": "the text `None` for the built-in BIOS",
    "virt.get_disks": "keys with spaces, such as `virtual size`",
    "virt.delete_snapshots": "the text `N/A` for a VM without snapshots",
    "virt.revert_snapshot": "the text `N/A` in `deleted` if `cleanup` was not given",
    "virt.vm_cputime": "`cputime_percent` grows as long as the VM runs",
}
_WORDS = {str: "text", int: "int", float: "number", bool: "bool", None: "null", ANY: "any"}
_WIDTH = 76


def mismatches(shape: Any, value: Any, where: str = "answer") -> Iterator[str]:
    """Yield in words where a value does not have a shape."""
    if isinstance(shape, tuple):
        found = [list(mismatches(option, value, where)) for option in shape]
        if all(found):
            # The alternative that fails deepest comes closest.
            yield from max(found, key=lambda lines: max(line.count(".") for line in lines))
    elif isinstance(shape, list):
        yield from _in_list(shape[0], value, where)
    elif isinstance(shape, Mapping):
        yield from _in_mapping(shape, value, where)
    elif shape is not ANY and not _is_of(shape, value):
        yield f"{where}: {type(value).__name__} instead of {_WORDS[shape]}"


def _is_of(shape: Any, value: Any) -> bool:
    if shape is None:
        return value is None
    kinds = {int: int, float: (int, float)}.get(shape, shape)
    return isinstance(value, kinds) and (shape is bool or not isinstance(value, bool))


def _in_list(element: Any, value: Any, where: str) -> Iterator[str]:
    if not isinstance(value, list):
        yield f"{where}: {type(value).__name__} instead of a list"
        return
    for number, item in enumerate(value):
        yield from mismatches(element, item, f"{where}[{number}]")


def _in_mapping(shape: Mapping[str, Any], value: Any, where: str) -> Iterator[str]:
    if not isinstance(value, Mapping):
        yield f"{where}: {type(value).__name__} instead of a mapping"
        return
    shapes = {key.rstrip("?"): part for key, part in shape.items() if not key.isupper()}
    other = next((part for key, part in shape.items() if key.isupper()), None)
    has_others = any(map(str.isupper, shape))
    required = {key for key in shape if not key.isupper() and not key.endswith("?")}
    yield from (f"{where}: lacks {key}" for key in sorted(required.difference(value)))
    for key, item in value.items():
        if key in shapes:
            yield from mismatches(shapes[key], item, f"{where}.{key}")
        elif has_others:
            yield from mismatches(other, item, f"{where}.{key}")
        else:
            yield f"{where}: has {key}"


def text(shape: Any, indent: str = "") -> str:
    """Return a shape as a text that looks like JSON, in several lines if it is long."""
    line = _line(shape)
    if len(indent) + len(line) <= _WIDTH or not isinstance(shape, list | Mapping | tuple):
        return line
    inner = f"{indent}  "
    if isinstance(shape, tuple):
        return f"\n{indent}or ".join(text(option, indent) for option in shape)
    if isinstance(shape, list):
        return f"[{text(shape[0], indent)}]"
    parts = [f"{inner}{_key(key)}: {text(part, inner)}" for key, part in shape.items()]
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


def _line(shape: Any) -> str:
    if isinstance(shape, tuple):
        return " or ".join(map(_line, shape))
    if isinstance(shape, list):
        return f"[{_line(shape[0])}]"
    if isinstance(shape, Mapping):
        return "{" + ", ".join(f"{_key(key)}: {_line(part)}" for key, part in shape.items()) + "}"
    return _WORDS[shape]


def _key(key: str) -> str:
    if key.isupper():
        return key
    return f'"{key.rstrip("?")}"' + ("?" if key.endswith("?") else "")


def page(shapes: Mapping[str, Any] = RUNNERS) -> str:
    """Return the page of the reference."""
    return "\n".join([heading("Answers of the runners", "="), *_rules(), *_entries(shapes)])


def _rules() -> Iterable[str]:
    return [
        "What each function returns to programs, and with ``--out=json``. A terminal shows a view.",
        "",
        "- A name in capitals stands for any number of keys; a key with ``?`` may be left out.",
        "- Numbers are numbers, what is not known is null, lists are lists.",
        "- A failure of any function is ``{error: text, retcode: 1}``, with what is known of the",
        "  answer beside it.",
        "- Where Salt 3006 has the function, its forms stay; the entry names what is odd.",
        "",
    ]


def _entries(shapes: Mapping[str, Any]) -> Iterator[str]:
    for name, shape in sorted(shapes.items()):
        yield heading(f"salt-run {name}", "-")
        if name in ODD:
            yield f"Odd, as in Salt 3006: {ODD[name]}.".replace("`", "``") + "\n"
        yield "::\n"
        yield "\n".join(f"    {line}".rstrip() for line in text(shape).split("\n")) + "\n"
