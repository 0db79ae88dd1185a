"""Resources of this host that a VM uses and that do not move with it."""

import errno
import os
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

from saltvirt.core import files
from saltvirt.core.options.config import HostSettings
from saltvirt.storage import diskpaths
from saltvirt.xml.edit import copied, hostdependencies, readdomain

_ELSEWHERE = (
    "declare where that is in virt:shared_paths if every host has it, or take it out of the "
    "definition"
)


def host_obstacles(settings: HostSettings, root: ET.Element, *, is_running: bool) -> Iterator[str]:
    """Yield a reason for each resource of this host that keeps a VM from moving."""
    if readdomain.has_host_device(root) or hostdependencies.has_tpm(root):
        yield "it has a device of this host, which cannot move; detach it first"
    for target, description in hostdependencies.disks(root):
        yield f"its disk {target} is {description}, which cannot move; detach it first"
    for path, description in _paths(root):
        if not diskpaths.is_declared(settings, path):
            yield f"{description}, which does not move; {_ELSEWHERE}"
    variables = readdomain.firmware_variables(root)
    if variables is not None and _is_untrusted(settings, variables):
        yield (
            f"its firmware's variables are in {variables}, a link that root has not made; see what "
            "it leads to, and put the file in its place"
        )
    elif variables is not None and _is_device(settings, variables):
        yield f"its firmware's variables are in {variables}, a device of this host; {_ELSEWHERE}"
    if not is_running:
        yield from _left_behind(settings, root)


def _paths(root: ET.Element) -> Iterator[tuple[str, str]]:
    """Yield ``(path, description)`` of the paths that a VM uses beside its disks."""
    for path in hostdependencies.folders(root):
        yield path, f"its guest shares {path} with this host"
    for path in copied.find_argument_files(root):
        yield path, f"QEMU is given {path} by <qemu:commandline>"


def _is_untrusted(settings: HostSettings, path: str) -> bool:
    """Return whether a path is a link that QEMU's user may have made."""
    if diskpaths.is_declared(settings, path) or not Path(path).is_symlink():
        return False
    try:
        os.close(files.open_by_trusted_links(path, os.O_RDONLY))
    except OSError as exc:
        return exc.errno == errno.ELOOP
    return False


def _is_device(settings: HostSettings, path: str) -> bool:
    is_there = os.path.exists(path) and not diskpaths.is_declared(settings, path)
    return is_there and not os.path.isfile(path)


def _left_behind(settings: HostSettings, root: ET.Element) -> Iterator[str]:
    """Yield a reason for each state that a stopped VM would lose; QEMU sends a running VM's."""
    state = readdomain.tpm_state(root)
    # libvirt makes the TPM's state at the first start; before that nothing can be lost.
    if state is not None and os.path.exists(state):
        yield (
            "its emulated TPM has its state on this host, which does not move; start it and "
            "move it live"
        )
    for path in hostdependencies.memories(root):
        if os.path.exists(path) and not diskpaths.is_declared(settings, path):
            yield (
                f"its persistent memory is in {path} on this host, which does not move; start it "
                "and move it live, or detach that memory"
            )
