"""Which VMs a call of ``virt.init_many`` asks for."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from saltvirt import arguments
from saltvirt.errors import BadArgument
from saltvirt.fleet.building import Request

# The lock of each name is an open file until its VM is built.
MOST = 500
_PLACE = re.compile(r"\{(?::0([1-9]))?\}")
_OF_CALL = (
    "host where placement spread_over headroom force wait wait_s dry_run quiet per_host "
    "max_parallel all_or_nothing count first vms"
).split()


def names(pattern: object, count: object, first: object = 1) -> list[str]:
    """
    Return ``count`` names: a pattern with numbers in the place of ``{}``.

    pattern
        With one ``{}``, or ``{:03}`` for numbers of at least three digits.
    first
        The first number. Defaults to 1.
    """
    number = arguments.whole("count", count, most=MOST)
    begin = arguments.whole("first", first, least=0, most=10**6)
    text = str(pattern)
    places = [found[1] for found in _PLACE.finditer(text)]
    if len(places) != 1:
        what = "no place" if not places else f"{len(places)} places"
        raise BadArgument(
            "name",
            f"{pattern!r} has {what} for the number; give one, as in 'web{{}}' or 'web{{:03}}'",
        )
    width = int(places[0] or 0)
    return [
        arguments.vm_name(_PLACE.sub(f"{n:0{width}}", text)) for n in range(begin, begin + number)
    ]


def listed(vms: object, usual: Mapping[str, Any]) -> list[dict[str, Any]]:
    """
    Return the arguments of each VM in a list.

    vms
        Names, and mappings with ``name`` and whatever is different from the usual.
    """
    if not isinstance(vms, Sequence) or isinstance(vms, str) or not vms:
        raise BadArgument("vms", f"{vms!r} is not a list of VMs")
    if len(vms) > MOST:
        raise BadArgument("vms", f"{len(vms)} VMs; at most {MOST} at once")
    return [{**usual, **_one(vm)} for vm in vms]


def _one(vm: object) -> dict[str, Any]:
    if isinstance(vm, str):
        return {"name": vm}
    if not isinstance(vm, Mapping) or "name" not in vm:
        raise BadArgument("vms", f"{vm!r} is neither a name nor a mapping with one")
    for key in map(str, vm):
        if key in _OF_CALL:
            raise BadArgument("vms", f"{key!r} of {vm['name']!r} is said once, of all of them")
    return {str(key): value for key, value in vm.items()}


def requests(vms: Sequence[Mapping[str, Any]], common: Mapping[str, Any]) -> list[Request]:
    """
    Return the requests; raise BadArgument if one of them cannot be met anywhere.

    vms
        The arguments of each: ``name``, ``cpu``, ``mem``, and keyword arguments of ``virt.init``.
    common
        What :class:`saltvirt.fleet.building.Request` has of all of them.
    """
    out: dict[str, Request] = {}
    for vm in vms:
        name = arguments.vm_name(vm["name"])
        if name in out:
            raise BadArgument("vms", f"{name!r} is asked for twice")
        given = {key: value for key, value in vm.items() if key not in ("name", "cpu", "mem")}
        for key in ("cpu", "mem"):
            if vm.get(key) is None:
                raise BadArgument(key, f"is missing for VM {name!r}")
        out[name] = Request(name=name, cpu=vm["cpu"], mem=vm["mem"], given=given, **common)
        try:
            out[name].required()
        except BadArgument as error:
            raise BadArgument(f"VM {name!r}: {error}") from None
    _refuse_same_macs(out.values())
    return list(out.values())


def _refuse_same_macs(wanted: Any) -> None:
    seen: dict[str, str] = {}
    for request in wanted:
        for nic in request.given.get("interfaces") or ():
            mac = nic.get("mac") if isinstance(nic, Mapping) else None
            if mac is None:
                continue
            other = seen.setdefault(str(mac).lower(), request.name)
            if other != request.name:
                raise BadArgument("interfaces", f"{other!r} and {request.name!r} have MAC {mac}")
