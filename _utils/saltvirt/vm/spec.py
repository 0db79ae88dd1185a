"""The VM that a call describes: every argument is checked here."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from saltvirt.core import arguments, nics, seedmethods, sshkeys
from saltvirt.core.errors import BadArgument
from saltvirt.core.model import Deployment, Disk, Nic, Requirements, Vm
from saltvirt.core.options import config, defaults3006
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt.lazyimport import lazy_imports
from saltvirt.placement import resources
from saltvirt.vm import profiles, valuekinds
from saltvirt.xml.domain import graphics, osboot
from saltvirt.xml.domain.cpu import features_of

# The hosts need it in any case; on a master only deploying does.
with lazy_imports():
    from saltvirt.xml.domain import domain

OPTIONS = {
    "nic": "default",
    "interfaces": None,
    "hypervisor": None,
    "start": True,
    "disk": "default",
    "disks": None,
    "saltenv": "base",
    "seed": True,
    "install": True,
    "pub_key": None,
    "priv_key": None,
    "seed_cmd": "seed.apply",
    "graphics": None,
    "os_type": None,
    "arch": None,
    "boot": None,
    "boot_dev": None,
    "numatune": None,
    "hypervisor_features": None,
    "clock": None,
    "serials": None,
    "consoles": None,
    "stop_on_reboot": False,
    "host_devices": None,
    "image": None,
    "image_hash": None,
    "seed_method": None,
    "install_from": None,
    "user_data": None,
    "enable_qcow": None,
    "enable_vnc": False,
    "config": None,
    "affinity": None,
    "anti_affinity": None,
    "machine": None,
    "ssh_authorized_keys": None,
    "autostart": False,
}
# Further arguments of salt-run, which hosts do not get.
_ON_MASTER = "host where wait wait_s quiet force placement spread_over headroom".split()
# Salt 3006 took these by position, in this order.
POSITIONAL = tuple(OPTIONS)[: tuple(OPTIONS).index("image")]
_MACHINE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HYPERVISORS = ("kvm", "qemu")
_SSH_KEYS = "ssh_authorized_keys"
_TEXTS = ("saltenv", "seed_cmd", "pub_key", "priv_key", "os_type", "arch")
_NAME_LISTS = ("host_devices", "affinity", "anti_affinity")
_PORTS = ("serials", "consoles")


def options_by_name(values: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the options of a call by their names.

    values
        By position, behind name, cpu and mem: an image first if the value has a slash (the seeds'
        call form), then those of Salt 3006 in its order.
    keywords
        By name; those that Salt itself adds are left out.
    """
    out = {key: value for key, value in keywords.items() if not key.startswith("__")}
    order = list(POSITIONAL)
    if values and arguments.is_image(values[0]):
        order.insert(0, "image")
    if len(values) > len(order):
        raise BadArgument("virt.init", f"{len(values) - len(order)} values too many")
    for name, value in zip(order, values, strict=False):
        if name in out:
            # The value is not shown: it may be secret.
            raise BadArgument(name, "given twice: by its place and by its name")
        out[name] = value
    return without_idle_keys(out)


def without_idle_keys(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options without a minion's keys if no seed is made: Salt 3006 ignored them."""
    idle = ("pub_key", "priv_key") if options.get("seed") is False else ()
    return {key: value for key, value in options.items() if key not in idle}


def check_options(keywords: Mapping[str, Any], extra_names: Sequence[str] = ()) -> dict[str, Any]:
    """Return all options of a call; refuse unknown ones, and invalid values."""
    unknown_names = [key for key in keywords if key not in OPTIONS]
    known_names = [*OPTIONS, *config.CONNECTION, *extra_names, "name", "cpu", "mem", "dry_run"]
    arguments.refuse_unknown(unknown_names, known_names, "virt.init")
    options = {**OPTIONS, **keywords}
    image = options["image"]
    if image is not None and not arguments.is_image(image):
        raise BadArgument(
            "image",
            f"{arguments.hide_credentials(image)!r} is not an image: write salt://path, "
            "http(s)://... or an absolute path",
        )
    if options["image_hash"] is not None and image is None:
        raise BadArgument("image_hash", "there is no image that it could belong to")
    for flag in ("start", "autostart", "seed", "install", "enable_vnc", "stop_on_reboot"):
        arguments.boolean(flag, options[flag])
    if options["enable_qcow"] is not None:
        arguments.boolean("enable_qcow", options["enable_qcow"])
    if options["seed_method"] not in (None, *seedmethods.NAMES):
        raise BadArgument(
            "seed_method", f"{options['seed_method']!r}; one of {', '.join(seedmethods.NAMES)}"
        )
    for key in _TEXTS:
        if not isinstance(options[key], str | None):
            raise BadArgument(key, "is not text")  # the value may be secret
    sshkeys.read_keys(_SSH_KEYS, options[_SSH_KEYS])
    return options


def _disks(settings: HostSettings, options: Mapping[str, Any]) -> tuple[Disk, ...]:
    """Return the call's disks; the digest of its image is for every disk that is made of it."""
    image, digest = options["image"], options["image_hash"]
    disks = profiles.disks(settings.disk, options["disk"], options["disks"], image)
    if settings.compat:
        disks = tuple(map(defaults3006.disk, disks))
    return tuple(
        replace(disk, image_hash=digest)
        if digest and disk.image == image and not disk.image_hash
        else disk
        for disk in disks
    )


def _nics(settings: HostSettings, name: str, options: Mapping[str, Any]) -> tuple[Nic, ...]:
    vm_nics = profiles.nics(name, settings.nic, options["nic"], options["interfaces"])
    if not settings.compat:
        return vm_nics
    old = tuple(defaults3006.nic(name, vm_nic) for vm_nic in vm_nics)
    nics.refuse_equal_macs(old)
    return old


def _graphics(
    settings: HostSettings, display: dict[str, Any] | None, *, has_vnc: bool
) -> dict[str, Any] | None:
    if display is None:
        return graphics.vnc(settings.vnc) if has_vnc else None
    return defaults3006.display(display) if settings.compat else display


def _ports(settings: HostSettings, vm: Vm) -> dict[str, Any]:
    """Return the serials and consoles with the defaults of the host."""
    if not settings.compat:
        return {}
    return {key: defaults3006.ports(getattr(vm, key)) for key in _PORTS}


def _parse_vm(name: str, cpu: Any, mem: Any, options: Mapping[str, Any]) -> Vm:
    """Return the VM of a call, without what depends on a host: disks, NICs and defaults."""
    osboot.check(arguments.mapping("boot", options["boot"]))
    valuekinds.check({**options, "cpu": cpu, "mem": mem})
    # libvirt's QEMU has no other type, but would refuse it only when all else is made.
    if options["os_type"] not in (None, "", "hvm"):
        raise BadArgument("os_type", f"{options['os_type']!r}; leave it out, or hvm")
    vcpus, memory_mib = arguments.vcpus(cpu), arguments.memory_mib(mem)
    mappings = ("boot", "numatune", "hypervisor_features", "clock", "graphics")
    fields: dict[str, Any] = {
        **{key: arguments.mapping(key, options[key]) for key in mappings},
        **{key: arguments.names(key, options[key]) for key in _NAME_LISTS},
        **{key: valuekinds.without_empty_values(key, options[key]) for key in _PORTS},
        **{key: options[key] for key in ("os_type", "arch", "stop_on_reboot")},
    }
    return Vm(
        name=name,
        cpu=cpu if isinstance(cpu, dict) else vcpus,
        vcpus=vcpus,
        memory=mem if isinstance(mem, dict) else memory_mib,
        memory_mib=memory_mib,
        domain_type=hypervisor_type(options["hypervisor"]),
        machine=_machine(options["machine"]),
        boot_dev=osboot.parse_boot_devices(options["boot_dev"]),
        **fields,
    )


def deployment(
    settings: HostSettings, name: str, cpu: Any, mem: Any, keywords: Mapping[str, Any]
) -> Deployment:
    """
    Return the :class:`Deployment` that a call of ``virt.init`` describes.

    keywords
        The keyword arguments of the call; unknown ones are refused by name.
    """
    options = check_options(keywords)
    vm = _parse_vm(arguments.vm_name(name), cpu, mem, options)
    vm = replace(
        vm,
        nics=_nics(settings, name, options),
        disks=_disks(settings, options),
        graphics=_graphics(settings, vm.graphics, has_vnc=options["enable_vnc"]),
        console_log=console_log(name) if settings.console_log else None,
        is_3006=settings.compat is not None,
        **_ports(settings, vm),
    )
    return Deployment(vm=vm, **deployment_options(options))


_AS_GIVEN = (
    "start autostart saltenv seed seed_cmd install install_from user_data seed_method enable_qcow "
    "pub_key priv_key"
).split()


def deployment_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a :class:`Deployment` other than its VM, from all options of a call."""
    return {
        "config": arguments.mapping("config", options["config"]) or {},
        "ssh_keys": sshkeys.read_keys(_SSH_KEYS, options[_SSH_KEYS]),
        **{key: options[key] for key in _AS_GIVEN},
    }


def console_log(name: str) -> str:
    """Return the log file of a VM's serial console; virtlogd writes and rotates it."""
    return f"/var/log/libvirt/qemu/{name}-console.log"


def hypervisor_type(requested: Any) -> str | None:
    if requested is not None and requested not in _HYPERVISORS:
        raise BadArgument("hypervisor", f"{requested!r}; one of {', '.join(_HYPERVISORS)}")
    domain_type: str | None = requested
    return domain_type


def _machine(machine: Any) -> str | None:
    if machine is not None and not (isinstance(machine, str) and _MACHINE.fullmatch(machine)):
        raise BadArgument(
            "machine", f"{machine!r} is not a machine type; such as q35 or pc-q35-7.2"
        )
    return machine


def requirements(vm: Vm) -> Requirements:
    """Return the requirements of a VM, for the host's own check."""
    return Requirements(
        name=vm.name,
        vcpus=vm.vcpus,
        memory_mib=vm.memory_mib,
        disk_mib=sum(disk.size_mib or 0 for disk in vm.disks if not resources.is_named(disk.pool)),
        domain_type=vm.domain_type,
        arch=vm.arch,
        machine=vm.machine,
        affinity=vm.affinity,
        anti_affinity=vm.anti_affinity,
        **nics.host_needs(vm.nics),
        cpu_features=_features(vm.cpu),
        stocks=resources.for_vm(vm.memory, vm.memory_mib, vm.numatune, vm.disks),
    )


def _features(cpu: Any) -> tuple[str, ...]:
    features = features_of(cpu) if isinstance(cpu, dict) else {}
    # A forced feature is shown to the guest whether the host has it or not.
    return tuple(sorted(n for n, policy in features.items() if policy == "require"))


def _profile(argument: str, options: Mapping[str, Any]) -> str | None:
    """Return the name of a profile; the hosts have its content."""
    name = options[argument]
    return None if name is None else arguments.text(argument, name)


def requirements_from_master(
    name: str, cpu: Any, mem: Any, keywords: Mapping[str, Any]
) -> Requirements:
    """
    Return what a VM needs of a host, as far as the master can know that.

    Only the hosts have the profiles, so they are only named here. Raises BadArgument for what every
    host would refuse: otherwise a dry run would name a host, and host after host would get the
    request.
    """
    arguments.vm_name(name)
    options = check_options(keywords, _ON_MASTER)
    deployment_options(options)
    vm = _parse_vm(name, cpu, mem, options)
    domain.build(vm)
    profile, interfaces = _profile("nic", options), options["interfaces"]
    called_vm = replace(
        vm,
        disks=profiles.called_disks(options["disks"]),
        nics=tuple(profiles.placed_nics(name, profile, interfaces)),
    )
    return replace(
        requirements(called_vm),
        nic_profile=profile,
        called=() if profile is None else profiles.called_nics(name, interfaces),
        disk_profile=_profile("disk", options),
    )
