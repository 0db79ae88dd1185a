"""What a workflow gets from the Salt module that called it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from saltvirt import arguments
from saltvirt.config import HostSettings, host_settings
from saltvirt.ops import answering


def _report_nothing(_stage: str, **_figures: object) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """
    The host's settings, Salt's options and functions, how to ask the master and to report.

    is_ordered
        By the master, which has checked the name of the VM.
    unasked
        The hosts that have not told the master what they have.
    others
        The VMs of other hosts that may have a disk called as one of this VM; None if nobody knows.
    uuid
        What a new VM is to have; None if this host chooses.
    images
        The digests of images of the master's file server, as the master says.
    is_undoable
        Whether the master may take the VM back when it is built: what the build makes is noted.
    """

    settings: HostSettings
    opts: Mapping[str, Any]
    functions: Mapping[str, Any] = field(default_factory=dict)
    progress: Callable[..., Any] = _report_nothing
    ask: Callable[..., Any] | None = None
    is_ordered: bool = False
    unasked: tuple[str, ...] = ()
    others: frozenset[str] | None = None
    uuid: str | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    is_undoable: bool = False

    def namesakes(self, vm: str, name: str) -> list[str]:
        """
        Return which other VMs a disk of a name may be of, on storage that other hosts have too.

        It is ``VM_DISK``, and both names may have a ``_``.
        """
        words = name.split("_")
        possible_vms = ("_".join(words[:count]) for count in range(1, len(words)))
        known_vms = self.others
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
        """Return the context of a call: the first four are what Salt gives its modules."""
        settings = host_settings(opts, pillar, grains, **override)
        return cls(settings=settings, opts=opts, functions=functions, ask=ask)

    def reporting(self, name: str, tag: str, report: object = True) -> "Context":
        """
        Return the context of the master's order, which hears of its progress by events.

        report
            What the order says: True, or ``{"unasked": [host], "others": [VM], "uuid": text,
            "images": {image: digest}, "undoable": bool}``.
        """
        options = report if isinstance(report, Mapping) else {}
        other_vms, uuid = options.get("others"), options.get("uuid")

        def progress(stage: str, **figures: object) -> None:
            value = {"name": name, "stage": stage, **figures}
            self.functions["event.fire_master"](answering.sign(self.opts, tag, value=value), tag)

        return replace(
            self,
            progress=progress,
            is_ordered=True,
            unasked=tuple(options.get("unasked") or ()),
            others=None if other_vms is None else frozenset(other_vms),
            uuid=None if uuid is None else arguments.uuid("report", uuid),
            images=dict(options.get("images") or {}),
            is_undoable=options.get("undoable") is True,
        )
