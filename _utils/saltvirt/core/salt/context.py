"""The context that a Salt module hands to a workflow."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.options.config import HostSettings, host_settings
from saltvirt.core.salt import answering


def _report_nothing(_stage: str, **_figures: object) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """
    The host's settings, Salt's options and functions, and the ways to ask the master and report.

    is_ordered
        Whether the master ordered the call, and has checked the name of the VM.
    hosts_without_names
        The hosts that did not tell the master which VMs they have.
    similar_vm_names
        VMs of other hosts that may have a disk of the same name; None if unknown.
    uuid
        The UUID for a new VM; None if this host chooses.
    images
        ``{image: digest}`` of images on the master's file server, from the master.
    is_undoable
        Whether the master may undo the finished build, so that the build records what it makes.
    """

    settings: HostSettings
    opts: Mapping[str, Any]
    functions: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[..., Any] = _report_nothing
    ask: Callable[..., Any] | None = None
    is_ordered: bool = False
    hosts_without_names: tuple[str, ...] = ()
    similar_vm_names: frozenset[str] | None = None
    uuid: str | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    is_undoable: bool = False

    def namesakes(self, vm: str, name: str) -> list[str]:
        """
        Return the other VMs that a disk's name may belong to, on storage shared with other hosts.

        The name is ``VM_DISK``, and both parts may contain a ``_``.
        """
        words = name.split("_")
        possible_vms = ("_".join(words[:count]) for count in range(1, len(words)))
        known_vms = self.similar_vm_names
        return [
            candidate
            for candidate in possible_vms
            if candidate not in ("", vm) and (known_vms is None or candidate in known_vms)
        ]

    @classmethod
    def of(
        cls,
        opts: Mapping[str, Any],
        pillar: Mapping[str, Any],
        grains: Mapping[str, Any],
        functions: Mapping[str, Any],
        *,
        ask: Callable[..., Any] | None = None,
        **override: Any,
    ) -> "Context":
        """Return the context of a call; the first four arguments are Salt's dunders."""
        settings = host_settings(opts, pillar, grains, **override)
        return cls(settings=settings, opts=opts, functions=functions, ask=ask)

    def reporting(self, name: str, tag: str, order_options: object = True) -> "Context":
        """
        Return the context of an order, which reports its progress to the master by events.

        order_options
            True, or ``{"unasked": [host], "others": [VM], "uuid": text, "images": {image: digest},
            "undoable": bool}`` from the order. False for a call that is no order: it reports
            nothing.
        """
        if not order_options:
            return self
        options = order_options if isinstance(order_options, Mapping) else {}
        other_vms, uuid = options.get("others"), options.get("uuid")

        def progress(stage: str, **figures: object) -> None:
            value = {"name": name, "stage": stage, **figures}
            self.functions["event.fire_master"](answering.sign(self.opts, tag, value=value), tag)

        return replace(
            self,
            progress=progress,
            is_ordered=True,
            hosts_without_names=tuple(options.get("unasked") or ()),
            similar_vm_names=None if other_vms is None else frozenset(other_vms),
            uuid=None if uuid is None else arguments.uuid("report", uuid),
            images=dict(options.get("images") or {}),
            is_undoable=options.get("undoable") is True,
        )
