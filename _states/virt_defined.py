"""
States of VMs on this hypervisor: defined, running.

.. versionadded:: 1.1.0
"""

from collections.abc import Mapping
from typing import Any

from saltvirt.core import arguments
from saltvirt.core.options import config, optionguard
from saltvirt.entry.host import hostmodule
from saltvirt.vm import spec
from saltvirt.vm.update.host import ensure

__virtualname__ = "virt"
__virtual__ = hostmodule.load_with_libvirt
_module = hostmodule.HostModule(globals())


def defined(
    name: str,
    cpu: Any = None,
    mem: Any = None,
    vm_type: str | None = None,
    disk_profile: str | None = None,
    disks: Any = None,
    nic_profile: str | None = None,
    interfaces: Any = None,
    graphics: Any = None,
    seed: bool = True,
    install: bool = True,
    pub_key: str | None = None,
    priv_key: str | None = None,
    connection: str | None = None,
    username: str | None = None,
    password: str | None = None,
    os_type: str | None = None,
    arch: str | None = None,
    boot: Any = None,
    numatune: Any = None,
    boot_dev: str | None = None,
    hypervisor_features: Any = None,
    clock: Any = None,
    serials: Any = None,
    consoles: Any = None,
    stop_on_reboot: bool = False,
    live: bool = True,
    host_devices: Any = None,
    autostart: bool | None = None,
    detach: bool = False,
    **kwargs: Any,
) -> dict[str, Any]:
    """
    Keep a VM defined: create it as virt.init does, or update it as virt.update does.

    name
        The VM's name.
    cpu, mem
        Virtual CPUs and MiB, or mappings. A new VM needs ``mem``, and has one CPU by default.
    vm_type, os_type, arch, seed, install, pub_key, priv_key
        Arguments of virt.init for a new VM (``vm_type`` is ``hypervisor`` there); its other
        arguments, such as ``image``, are accepted too. They are ignored for an existing VM.
    disk_profile, disks, nic_profile, interfaces
        Its disks and NICs. Without a profile only the listed ones: the state fails if the VM has
        others, unless ``detach`` is True.
    graphics, boot, numatune, boot_dev, hypervisor_features, clock, serials, consoles, host_devices
        As for virt.update: omitted settings stay.
    stop_on_reboot
        Stop instead of reboot. Defaults to False.
    live
        Update the running VM too. Defaults to True.
    autostart
        Start it with the host, or not. Defaults to None: no change.
    detach
        Detach devices that the lists omit, as virt.update does. Defaults to False.
    connection, username, password
        Override ``virt:connection``.

    ``changes`` are ``{name: {definition: True}}``, or the result of virt.update. Undo: virt.purge.

    .. code-block:: yaml

        web1:
          virt.defined:
            - cpu: 2
            - mem: 2048
            - disks:
              - name: system
                size: 8192
    """
    return _ensure("virt.defined", dict(locals()), start=False)


def running(
    name: str,
    cpu: Any = None,
    mem: Any = None,
    vm_type: str | None = None,
    disk_profile: str | None = None,
    disks: Any = None,
    nic_profile: str | None = None,
    interfaces: Any = None,
    graphics: Any = None,
    seed: bool = True,
    install: bool = True,
    pub_key: str | None = None,
    priv_key: str | None = None,
    connection: str | None = None,
    username: str | None = None,
    password: str | None = None,
    os_type: str | None = None,
    arch: str | None = None,
    boot: Any = None,
    boot_dev: str | None = None,
    numatune: Any = None,
    hypervisor_features: Any = None,
    clock: Any = None,
    serials: Any = None,
    consoles: Any = None,
    stop_on_reboot: bool = False,
    host_devices: Any = None,
    autostart: bool | None = None,
    detach: bool = False,
    **kwargs: Any,
) -> dict[str, Any]:
    """
    Keep a VM running: create or update it as virt.defined does, then start or resume it.

    name
        The VM's name.

    The other arguments are those of virt.defined except ``live``: a running VM is updated too.
    ``changes`` are those of virt.defined, with ``started: True``. Undo: virt.stop.

    .. code-block:: yaml

        web1:
          virt.running:
            - cpu: 2
            - mem: 2048
            - image: salt://images/debian.qcow2
    """
    return _ensure("virt.running", dict(locals()), start=True)


def _ensure(function: str, state_arguments: Mapping[str, Any], *, start: bool) -> dict[str, Any]:
    """Bring a VM to the state that the arguments describe, and return the state's result."""
    name, is_test = state_arguments["name"], _module.is_test
    context = _module.context(hostmodule.login(state_arguments), asks_master=True)
    options = _init_options(function, state_arguments)
    out = ensure.ensure(context, name, options, start=start, test=is_test)
    is_done = None if is_test and out.changes else True
    answer = {
        "name": name,
        "changes": {name: out.changes} if out.changes else {},
        "result": is_done if out.failure is None else False,
        "comment": out.comment,
    }
    return {**answer, "warnings": list(out.cautions)} if out.cautions else answer


def _init_options(function: str, state_arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a state, with further ones of virt.init."""
    own_options = {
        key: item
        for key, item in state_arguments.items()
        if key not in ("name", "kwargs", *config.CONNECTION)
    }
    extra_options = {
        key: item for key, item in state_arguments["kwargs"].items() if not key.startswith("__")
    }
    known_names = set(spec.OPTIONS) - {"start", "disk", "nic", "hypervisor"}
    unknown_names = [key for key in extra_options if key not in known_names]
    arguments.refuse_unknown(unknown_names, [*known_names, *own_options], function)
    return {**own_options, **extra_options}


optionguard.states(globals())
