"""<domain>."""

from saltvirt.xml import (
    METADATA_NS,
    chardev,
    clock,
    cpu,
    disk,
    features,
    graphics,
    hostdev,
    memory,
    nic,
    osboot,
    tag,
    to_text,
)


def build(vm, host_devices=()):
    """
    Return the domain XML of a VM.

    vm
        A :class:`saltvirt.model.Vm` whose disks have paths and whose type is decided.
    host_devices
        The descriptions of ``vm.host_devices``.
    """
    maximum, memory_size, current, backing, memtune = memory.elements(vm.memory)
    cpus = [element for element in cpu.elements(vm.cpu, vm.domain_type) if element is not None]
    by_name = {element.tag: element for element in cpus}
    return to_text(
        tag(
            "domain",
            {"type": vm.domain_type},
            tag("name", text=vm.name),
            _metadata(vm),
            maximum,
            memory_size,
            current,
            backing,
            memtune,
            by_name.get("vcpu"),
            by_name.get("vcpus"),
            by_name.get("iothreads"),
            by_name.get("cputune"),
            memory.numatune(vm.numatune),
            osboot.element(vm),
            features.element(vm.hypervisor_features, vm.arch),
            by_name.get("cpu"),
            clock.element(vm.clock),
            tag("on_poweroff", text="destroy"),
            tag("on_reboot", text="destroy" if vm.stop_on_reboot else "restart"),
            tag("on_crash", text="destroy"),
            _devices(vm, host_devices),
        )
    )


def _metadata(vm):
    def group(name, members):
        return [tag(f"{{{METADATA_NS}}}{name}", text=member) for member in members]

    disk_mib = sum(one.size_mib or 0 for one in vm.disks)
    ours = tag(
        f"{{{METADATA_NS}}}vm",
        {"disk_mib": disk_mib, "seed": vm.seed_path},
        *group("affinity", vm.affinity),
        *group("anti_affinity", vm.anti_affinity),
    )
    return tag("metadata", None, ours)


def _devices(vm, host_devices):
    targets = {one.target for one in vm.disks}
    free = next(f"vd{letter}" for letter in "bcdefghijklmnopqrstuvwxyz"
                if f"vd{letter}" not in targets)  # fmt: skip
    return tag(
        "devices",
        None,
        *[disk.element(one) for one in vm.disks],
        disk.seed(vm.seed_path, free) if vm.seed_path else None,
        *[nic.element(one) for one in vm.nics],
        *chardev.elements(vm.serials, vm.consoles, vm.console_log),
        tag(
            "channel",
            {"type": "unix"},
            tag("target", {"type": "virtio", "name": "org.qemu.guest_agent.0"}),
        ),
        *graphics.elements(vm.graphics),
        *[hostdev.element(device) for device in host_devices],
        tag("rng", {"model": "virtio"}, tag("backend", {"model": "random"}, text="/dev/urandom")),
    )
