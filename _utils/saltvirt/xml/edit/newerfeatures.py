"""
The elements of a domain that not every libvirt knows.

An older libvirt does not refuse an element of a newer one, but drops it: the moved VM has lost it,
or QEMU breaks the move off in the middle. The list is what the schema of libvirt 11.3 has and that
of 9.0 lacks, as far as a guest or its data could notice; the version is libvirt's own information,
or else the first release with the element.

For a libvirt beyond 11.3, compare the schemas of its release (``src/conf/schemas/*.rng``) with
those of 11.3, and add a row for each element or value that a guest or its data could notice.
``tests/unit/placement/test_generation.py`` tries rows. Then change the number in this text.
"""

import xml.etree.ElementTree as ET

_DISK = "devices/disk"
_TEMPLATE = "os/nvram[@templateFormat='qcow2']"
_NEWER = (
    ("a PCI panic device", "devices/panic[@model='pvpanic']", "9.1"),
    ("a crypto device", "devices/crypto", "9.1"),
    ("firmware in qcow2", "os/loader[@format='qcow2']", "9.2"),
    ("firmware variables in qcow2", "os/nvram[@format='qcow2']", "9.2"),
    ("blob resources of a video card", "devices/video/model[@blob='on']", "9.2"),
    ("a limit of the CPU's address bits", "cpu/maxphysaddr[@limit]", "9.3"),
    ("the address of a memory device", "devices/memory/target/address[@base]", "9.4"),
    ("polling limits of I/O threads", "iothreadids/iothread/poll", "9.4"),
    ("several channels of USB sound", "devices/sound[@multichannel='yes']", "9.4"),
    ("discard_no_unref on a disk", f"{_DISK}/driver[@discard_no_unref]", "9.5"),
    ("async-teardown", "features/async-teardown", "9.6"),
    ("a disk over SSH", f"{_DISK}/source[@protocol='ssh']", "9.8"),
    ("a vhost-vdpa disk", f"{_DISK}[@type='vhostvdpa']", "9.8"),
    ("PipeWire audio", "devices/audio[@type='pipewire']", "9.10"),
    ("several I/O threads for one disk", f"{_DISK}/driver/iothreads", "10.0"),
    ("mapped IDs of a shared folder", "devices/filesystem/idmap", "10.0"),
    ("clusters of CPUs", "cpu/topology[@clusters!='1']", "10.1"),
    ("dynamic slots of memory", "devices/memory/target[@dynamicMemslots='yes']", "10.1"),
    ("a folder over MTP", "devices/filesystem/driver[@type='mtp']", "10.2"),
    ("memory reserved on a PCI port", "devices/controller/target[@memReserve]", "10.3"),
    ("virtio sound", "devices/sound[@model='virtio']", "10.4"),
    ("the feature ras", "features/ras", "10.4"),
    ("SEV-SNP", "launchSecurity[@type='sev-snp']", "10.5"),
    ("a pstore device", "devices/pstore", "10.6"),
    ("a limit of open files of a shared folder", "devices/filesystem/binary/openfiles", "10.6"),
    ("the feature ps2", "features/ps2", "10.7"),
    ("the Hyper-V feature emsr_bitmap", "features/hyperv/emsr_bitmap", "10.7"),
    ("the Hyper-V feature xmm_input", "features/hyperv/xmm_input", "10.7"),
    ("dma_translation of an IOMMU", "devices/iommu/driver[@dma_translation]", "10.7"),
    ("a data file beside a qcow2 disk", f"{_DISK}/source/dataStore", "10.10"),
    ("a template of firmware variables in qcow2", _TEMPLATE, "10.10"),
    ("a TPM profile", "devices/tpm/backend/profile", "10.10"),
    ("the Hyper-V feature tlbflush direct", "features/hyperv/tlbflush/direct", "11.0"),
    ("the Hyper-V feature tlbflush extended", "features/hyperv/tlbflush/extended", "11.0"),
    ("the feature aia", "features/aia", "11.1"),
    ("a shim", "os/shim", "11.2"),
    ("throttle groups", f"{_DISK}/throttlefilters", "11.2"),
    ("several I/O threads for one controller", "devices/controller/driver/iothreads", "11.2"),
    ("discard_granularity of a disk", f"{_DISK}/blockio[@discard_granularity]", "11.3"),
)
# A template in the format of the variables is copied as it is, which every libvirt can. Variables
# without a format are raw.
_ALIKE = "os/nvram[@templateFormat='qcow2'][@format='qcow2']"


def find_newer_features(root: ET.Element) -> list[list[str]]:
    """Return ``[[element, libvirt's first version with it]]`` of a domain; mostly empty."""
    is_alike = root.find(_ALIKE) is not None
    return [
        [feature, since]
        for feature, path, since in _NEWER
        if root.find(path) is not None and not (path is _TEMPLATE and is_alike)
    ]
