"""Create, update or start a VM as a state requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt.core import arguments, nics
from saltvirt.core.errors import LibvirtRefused, NotThereYet, VirtError
from saltvirt.core.salt.context import Context
from saltvirt.libvirt import connect, departedvms, hostfacts
from saltvirt.libvirt.domains import lifecycle, power, query
from saltvirt.vm import spec
from saltvirt.vm.create.host import create
from saltvirt.vm.power.host import startlock
from saltvirt.vm.update.host import apply, request
from saltvirt.xml.edit import readdomain

# State arguments that virt.init calls by other names.
_INIT_NAMES = {"vm_type": "hypervisor", "disk_profile": "disk", "nic_profile": "nic"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """
    The changes that were made, or would be.

    changes
        In the form of Salt 3006's states, below the VM's name.
    failure
        The reason of a failure, in one line.
    cautions
        Warnings about a new VM, one line each.
    """

    comment: str
    changes: dict[str, Any] = field(default_factory=dict)
    failure: str | None = None
    cautions: tuple[str, ...] = ()


def ensure(
    context: Context, name: str, state_arguments: Mapping[str, Any], *, start: bool, test: bool
) -> Outcome:
    """
    Create a missing VM or update an existing one, and start it if ``start`` is set.

    state_arguments
        The arguments of the state, and further ones of ``virt.init``.
    """
    # Check these for a new VM, too: only the next run uses them.
    for key, default in (("live", True), ("detach", False)):
        arguments.boolean(key, state_arguments.get(key, default))
    with connect.open_connection(context.settings, readonly=False) as conn:
        if lifecycle.is_defined(conn, name):
            update_arguments = {**state_arguments, "test": test}
            update_request = request.from_call(context.settings, name, update_arguments)
            _refuse_unstartable(conn, name, update_request, start=start)
            out = _update(context, conn, update_request)
            if not start or out.failure is not None:
                return out
            return _add_start(context, conn, name, out, test=test)
    return _create(context, name, state_arguments, start=start, test=test)


def _create(
    context: Context, name: str, state_arguments: Mapping[str, Any], *, start: bool, test: bool
) -> Outcome:
    departedvms.refuse_moved(context.settings, name)
    if state_arguments.get("mem") is None:
        raise NotThereYet(f"there is no VM {name!r} on this host; to create it give mem")
    # As libvirt's default for Salt 3006, which wrote no count.
    cpu = 1 if state_arguments.get("cpu") is None else state_arguments["cpu"]
    options = _options(state_arguments)
    deployment = spec.deployment(
        context.settings, name, cpu, state_arguments["mem"], {**options, "start": start}
    )
    if test:
        cautions = create.show(context, deployment).get("warnings", [])
    else:
        cautions = create.create_with_warnings(context, deployment)
    changes = {"definition": True}
    changes |= {"autostart": True} if deployment.autostart else {}
    changes |= {"started": True} if start else {}
    comment = f"Domain {name} defined{' and started' if start else ''}"
    return Outcome(comment=comment, changes=changes, cautions=tuple(cautions))


def _options(state_arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Translate a state's arguments into options of ``virt.init``."""
    options = {
        _INIT_NAMES.get(key, key): value
        for key, value in state_arguments.items()
        if key not in ("live", "detach", "cpu", "mem")
    }
    if options.get("autostart") is None:
        options["autostart"] = False
    if options.get("image") and options.get("disk") is None and not options.get("disks"):
        # Not beside listed disks: the next run would detach the profile's unlisted disk.
        options["disk"] = "default"
    return spec.without_idle_keys(options)


def _refuse_unstartable(
    conn: Any, name: str, update_request: request.Request, *, start: bool
) -> None:
    """Raise LibvirtRefused, before any change, if a network that the VM needs is not active."""
    network_names = _new_networks(conn, name, update_request, start=start)
    networks_by_name = hostfacts.networks(conn) if network_names else {}
    for network in sorted(network_names):
        if not networks_by_name.get(network, {}).get("active"):
            raise LibvirtRefused(
                f"VM {name!r} cannot run: no active network {network} on this host; define and "
                f"start it first (virt.network_start {network})"
            )


def _new_networks(
    conn: Any, name: str, update_request: request.Request, *, start: bool
) -> set[str]:
    """Return the networks that the VM will be in when it runs, but is not in now."""
    is_active = lifecycle.is_active(conn, name)
    if not (update_request.live if is_active else start):
        return set()
    if update_request.interfaces is None:
        if is_active:
            return set()
        return set(
            readdomain.links(readdomain.domain(lifecycle.inactive_xml(conn, name)))["networks"]
        )
    network_names = set(nics.host_needs(update_request.interfaces)["networks"])
    root = readdomain.domain(lifecycle.xml(conn, name))
    return network_names - set(readdomain.links(root)["networks"]) if is_active else network_names


def _update(context: Context, conn: Any, update_request: request.Request) -> Outcome:
    name, status = update_request.name, apply.update_with(context, conn, update_request)
    # A state's test reports the same changes as its real run.
    status.pop("diff", None)
    errors = status.get("errors")
    changes = status if apply.is_changed(status) else {}
    if errors:
        comment = f"Domain {name} updated with live update(s) failures: {'; '.join(errors)}"
        return Outcome(comment=comment, changes=changes, failure="; ".join(errors))
    if not changes:
        return Outcome(comment=f"Domain {name} unchanged")
    return Outcome(comment=f"Domain {name} updated", changes=changes)


def _add_start(context: Context, conn: Any, name: str, out: Outcome, *, test: bool) -> Outcome:
    try:
        with connect.refusals():
            is_started = _start(context, conn, name, test=test)
    except VirtError as exc:
        return replace(out, comment=str(exc), failure=str(exc))
    if not is_started:
        return out if out.changes else replace(out, comment=f"Domain {name} exists and is running")
    comment = f"{out.comment} and started" if out.changes else f"Domain {name} started"
    return replace(out, comment=comment, changes={**out.changes, "started": True})


def _start(context: Context, conn: Any, name: str, *, test: bool) -> bool:
    """Start or resume a VM that does not run; return whether that was, or is, necessary."""
    is_paused = query.state(conn, name) == "paused"
    if lifecycle.is_active(conn, name) and not is_paused:
        power.refuse(conn, name, "start")
        return False
    with startlock.allow_start(conn, context.settings, name):
        if is_paused and not test:
            power.act(conn, name, "resume")
        elif not test:
            lifecycle.start(conn, name)
    return True
