"""The request of a call of ``virt.init_many``, and its outcome."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from saltvirt.core import arguments, terminal
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.placement import cures
from saltvirt.vm.create.master import vmrequest
from saltvirt.vm.create.master.vmrequest import Terms, VmRequest

# The lock of each name is an open file until the VM is built.
MOST = 500
_PLACE = re.compile(r"\{(?::0([1-9]))?\}")
_CALL_OPTIONS = (
    "host where placement spread_over headroom force wait wait_s dry_run quiet per_host "
    "max_parallel all_or_nothing count first vms"
).split()


def number_names(pattern: object, count: object, first: object = 1) -> list[str]:
    """
    Return ``count`` names: a pattern with a number in place of ``{}``.

    pattern
        With one ``{}``, or ``{:03}`` for numbers of at least three digits.
    first
        The first number. Defaults to 1.
    """
    number = arguments.whole_number("count", count, most=MOST)
    begin = arguments.whole_number("first", first, least=0, most=10**6)
    text = str(pattern)
    places = [match[1] for match in _PLACE.finditer(text)]
    if len(places) != 1:
        places_text = "no place" if not places else f"{len(places)} places"
        raise BadArgument(
            "name",
            f"{pattern!r} has {places_text} for the number; give one, as in 'web{{}}' or "
            f"'web{{:03}}'",
        )
    width = int(places[0] or 0)
    return [
        arguments.vm_name(_PLACE.sub(f"{n:0{width}}", text)) for n in range(begin, begin + number)
    ]


def parse_list(vms: object, defaults: Mapping[str, Any]) -> list[dict[str, Any]]:
    """
    Return the arguments of each VM in a list.

    vms
        Names, and mappings with ``name`` and the arguments that differ from the defaults.
    """
    if not isinstance(vms, Sequence) or isinstance(vms, str) or not vms:
        raise BadArgument("vms", f"{vms!r} is not a list of VMs")
    if len(vms) > MOST:
        raise BadArgument("vms", f"{len(vms)} VMs; at most {MOST} at once")
    return [{**defaults, **_parse_vm(vm)} for vm in vms]


def _parse_vm(vm: object) -> dict[str, Any]:
    if isinstance(vm, str):
        return {"name": vm}
    if not isinstance(vm, Mapping) or "name" not in vm:
        raise BadArgument("vms", f"{vm!r} is neither a name nor a mapping with one")
    for key in map(str, vm):
        if key in _CALL_OPTIONS:
            raise BadArgument("vms", f"{key!r} of {vm['name']!r} is said once, of all of them")
    return {str(key): value for key, value in vm.items()}


def parse_requests(vms: Sequence[Mapping[str, Any]], terms: Terms) -> list[VmRequest]:
    """
    Return the requests; raise BadArgument if one of them can be met on no host.

    vms
        Arguments of each VM: ``name``, ``cpu``, ``mem``, and keyword arguments of ``virt.init``.
    terms
        The terms of all of them.
    """
    out: dict[str, VmRequest] = {}
    for vm in vms:
        name = arguments.vm_name(vm["name"])
        if name in out:
            raise BadArgument("vms", f"{name!r} is asked for twice")
        for key in ("cpu", "mem"):
            if vm.get(key) is None:
                raise BadArgument(key, f"is missing for VM {name!r}")
        kwarg = {key: value for key, value in vm.items() if key not in ("name", "cpu", "mem")}
        try:
            out[name] = vmrequest.parse(name, vm["cpu"], vm["mem"], kwarg, terms)
        except BadArgument as error:
            raise BadArgument(f"VM {name!r}: {error}") from None
    _refuse_same_macs(out.values())
    return list(out.values())


def _refuse_same_macs(vm_requests: Iterable[VmRequest]) -> None:
    names_by_mac: dict[str, str] = {}
    for request in vm_requests:
        for nic in request.kwarg.get("interfaces") or ():
            mac = nic.get("mac") if isinstance(nic, Mapping) else None
            if mac is None:
                continue
            first_name = names_by_mac.setdefault(str(mac).lower(), request.name)
            if first_name != request.name:
                raise BadArgument(
                    "interfaces", f"{first_name!r} and {request.name!r} have MAC {mac}"
                )


# How many names, or reasons, a line lists.
_MOST = 3


def no_place(reasons_by_host: Mapping[str, str]) -> str:
    """Return one line for ``{host: reason}``: the most frequent reasons, each once."""
    hosts_by_reason: dict[str, list[str]] = {}
    for host, reason in sorted(reasons_by_host.items()):
        hosts_by_reason.setdefault(reason, []).append(host)
    top_reasons = sorted(hosts_by_reason.items(), key=lambda item: -len(item[1]))[:_MOST]
    reasons_text = "; ".join(f"{reason} ({first_few(hosts)})" for reason, hosts in top_reasons)
    return f"no host fits: {reasons_text}{'; …' if len(hosts_by_reason) > _MOST else ''}"


def first_few(names: Iterable[str]) -> str:
    """Return the first few of some names, and how many more there are."""
    return terminal.join_some(names, _MOST)


class NotAllBuilt(VirtError):
    """Some VMs were not built; ``table`` says which, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """
    The request of a call of ``virt.init_many``.

    requests
        The VMs; all share where they may go, and how the best host is chosen.
    per_host, max_parallel
        How many VMs are built at a time, on one host and in all.
    all_or_nothing
        If a VM fails, the VMs that this call has built are purged again.
    """

    requests: Sequence[VmRequest]
    per_host: int
    max_parallel: int
    all_or_nothing: bool = False

    @property
    def terms(self) -> Terms:
        """The terms of all VMs."""
        return self.requests[0].terms


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What has become of the VMs."""

    built: dict[str, str] = field(default_factory=dict)
    """``{name: host}``"""
    exists: dict[str, str] = field(default_factory=dict)
    """``{name: host}`` of the VMs that existed before."""
    failed: dict[str, str] = field(default_factory=dict)
    """``{name: reason}``"""
    warnings: dict[str, list[str]] = field(default_factory=dict)
    """``{name: warnings of its host}``"""
    seconds: dict[str, float] = field(default_factory=dict)
    """``{name: how long its minion took to answer}``"""
    purged: dict[str, str] = field(default_factory=dict)
    """``{name: host}`` of the VMs that were purged again."""
    not_purged: dict[str, str] = field(default_factory=dict)
    """``{name: reason}`` of the VMs that were not purged again."""

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        parts: dict[str, Mapping[str, Any]] = {
            "warnings": self.warnings,
            "seconds": self.seconds,
            "purged": self.purged,
            "left": self.not_purged,
        }
        shown: dict[str, Mapping[str, Any]] = {
            "built": self.built,
            "exists": self.exists,
            "failed": self.failed,
            **{key: value for key, value in parts.items() if value},
        }
        return {key: dict(sorted(value.items())) for key, value in shown.items()}


def not_built_error(
    call: Call, failed: Mapping[str, str], table: Mapping[str, Any], advice: str
) -> NotAllBuilt:
    """
    Return the error that names the first few VMs, the reason of the first, and the next step.

    The message ends with the remedies for VMs without a place; its table has them as ``helps``.
    """
    first = min(failed)
    texts, remedies_text = (
        cures.find_cures(failed.values()),
        cures.format_cures(failed.values()),
    )
    error = NotAllBuilt(
        f"{len(failed)} of {terminal.count_text(len(call.requests), 'VM')} not built: "
        f"{first_few(sorted(failed))} ({first}: {failed[first]}); {advice}{remedies_text}"
    )
    error.table = {**table, **({"helps": texts} if texts else {})}
    return error


def describe_next_step(call: Call, out: Outcome) -> str:
    """Return what was done after some VMs failed, or what the operator can do."""
    if not call.all_or_nothing:
        return "run it again: it builds those alone"
    if out.not_purged:
        first = min(out.not_purged)
        return (
            f"all or nothing, but {first_few(sorted(out.not_purged))} could not be purged again "
            f"({first}: {out.not_purged[first]}); salt-run virt.purge NAME removes each of them"
        )
    purged_text = terminal.count_text(len(out.purged), "VM")
    return f"all or nothing: {purged_text} that this call had built {_are(out.purged)} purged again"


def _are(vms: Mapping[str, str]) -> str:
    return "is" if len(vms) == 1 else "are"
