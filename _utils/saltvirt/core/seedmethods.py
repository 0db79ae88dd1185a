"""
The seed methods: one entry for each, which all that choose, check or use a method ask.

A further method is a further entry of :data:`METHODS`. Code elsewhere asks an entry what the method
does, and compares no names. Only ``auto``, which chooses a method by the image, knows two of them.
The writers of ``DISK`` are the ``openers`` in ``seeding/offline/worker/__main__.py``, by name. The
other writers are chosen by ``writes_to``, in ``vm/create/host/apply.py`` (``_write_identity``).
"""

from collections.abc import Mapping
from dataclasses import dataclass

AUTO = "auto"
# Where methods write the identity: into the VM's disk, into a disk of its own, or into a file that
# QEMU reads when the VM starts.
DISK, SEED, CREDENTIAL = "disk", "seed", "credential"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedMethod:
    """
    A way by which a guest gets its identity before its first boot.

    name
        Its word in ``seed_method=`` and ``virt:seed:method``, and with ``DISK`` the worker's.
    tool
        What writes, as errors of a ``DISK`` method name it. Defaults to the method's name.
    writes_to
        ``DISK``, ``SEED`` or ``CREDENTIAL``.
    file_end
        The end of the name of the file that it makes for a VM, None if it makes none. The file has
        keys in it. A ``SEED`` stays in the definition of the VM, and a ``CREDENTIAL`` does not.
    reads_image
        Whether it depends on the image's content, which an appliance reads first.
    needs_appliance
        Whether it writes by an appliance, which gets an unprivileged user of its own.
    needs_host_mount
        Whether this host's kernel mounts the disk, which ``virt:seed:allow_host_mount`` allows.
    least_systemd
        The oldest systemd in the image that it works with. None if it needs none.
    is_for_cloud_init
        Whether cloud-init reads the seed, with user data and the network's configuration.
    no_install_from
        Why a guest that installs its minion at boot cannot use ``install_from``. None if the method
        never has a guest do that.
    replaces_identity
        Whether it removes the identity that the disk had, as a clone needs.
    """

    name: str
    writes_to: str
    tool: str = ""
    file_end: str | None = None
    reads_image: bool = False
    needs_appliance: bool = False
    needs_host_mount: bool = False
    least_systemd: int | None = None
    is_for_cloud_init: bool = False
    no_install_from: str | None = None
    replaces_identity: bool = True

    @property
    def installs_minion(self) -> bool:
        """Whether an image without a minion can get one."""
        return self.needs_appliance or self.no_install_from is not None


NOCLOUD = SeedMethod(
    name="nocloud",
    writes_to=SEED,
    file_end="_seed.iso.qcow2",
    is_for_cloud_init=True,
    no_install_from="it is put into a system that was found in the image",
)
GUESTFS = SeedMethod(
    name="guestfs", writes_to=DISK, tool="libguestfs", reads_image=True, needs_appliance=True
)
NBD = SeedMethod(
    name="nbd",
    writes_to=DISK,
    tool="mounting by this host",
    needs_host_mount=True,
    no_install_from="a host never runs what is in a guest's disk",
)
CREDENTIALS = SeedMethod(
    name="credentials",
    writes_to=CREDENTIAL,
    file_end="_seed.credentials",
    reads_image=True,
    least_systemd=252,
    replaces_identity=False,
)
METHODS: Mapping[str, SeedMethod] = {
    method.name: method for method in (NOCLOUD, GUESTFS, NBD, CREDENTIALS)
}
# All words of ``seed_method=`` and ``virt:seed:method``.
NAMES = (AUTO, *METHODS)


def reads_image(name: str) -> bool:
    """Return whether a method, or the choice of one by ``auto``, depends on the image's content."""
    return name == AUTO or (name in METHODS and METHODS[name].reads_image)
