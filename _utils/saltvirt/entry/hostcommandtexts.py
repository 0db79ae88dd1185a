"""
The commands of hosts without one of that name in the runner: their usage, and what they do.

A master need not have the files of hosts' modules. ``tools/commandpage.py --write`` makes the texts
from the docstrings below ``_modules``; ``tests/unit/entry/test_commandhelp.py`` compares them.
"""

from saltvirt.core.functiontext import FunctionText

# A line with the usage, and indented by eight spaces more of it; then the sentence, by four.
_TEXTS = """
guestfs.mount LOCATION [access=rw] [root=ROOT]
    Mount all file systems of a disk image below a folder.
guestfs.umount NAME [disk=DISK] [force=False]
    Unmount a folder of guestfs.mount, and wait until its disk is released.
qemu_img.convert ORIG DEST FMT
    Copy a disk image's content into another format.
qemu_img.make_image LOCATION SIZE FMT
    Make an empty disk image.
qemu_nbd.clear MNT
    Unmount the folders of qemu_nbd.mount or qemu_nbd.init, and detach their device.
qemu_nbd.connect IMAGE
    Attach a disk image to a free nbd device.
qemu_nbd.init IMAGE [root=ROOT]
    Attach a disk image and mount its partitions.
qemu_nbd.mount NBD [root=ROOT]
    Mount the partitions of an attached device with nodev, nosuid and noexec.
seed.apply PATH [id_=ID] [config=CONFIG] [approve_key=True] [install=True] [prep_install=False]
        [pub_key=PUB_KEY] [priv_key=PRIV_KEY] [mount_point=MOUNT_POINT]
    Write a minion's identity into a disk image or device, or below a folder.
seed.mkconfig [config=CONFIG] [tmp=TMP] [id_=ID] [approve_key=True] [pub_key=PUB_KEY]
        [priv_key=PRIV_KEY]
    Write a minion's configuration and key pair into a private folder.
seed.prep_bootstrap MPT
    Copy the bootstrap script below a guest's '/tmp'.
virt.all_capabilities [ARGUMENT=VALUE ...]
    Return the capabilities of this host and of every kind of guest that it lists.
virt.capabilities [ARGUMENT=VALUE ...]
    Return libvirt's capabilities of this host and its guests.
virt.cpu_baseline [full=False] [migratable=False] [out=libvirt] [ARGUMENT=VALUE ...]
    Return the CPU model that guests can use on all hosts like this one.
virt.create_xml_path PATH [ARGUMENT=VALUE ...]
    Start a transient VM from a file with libvirt's domain XML.
virt.create_xml_str XML [ARGUMENT=VALUE ...]
    Start a transient VM from libvirt's domain XML; its definition is gone when it stops.
virt.define_vol_xml_path PATH [pool=POOL] [ARGUMENT=VALUE ...]
    Make a volume from a file with libvirt's own XML.
virt.define_vol_xml_str XML [pool=POOL] [ARGUMENT=VALUE ...]
    Make a volume from libvirt's own XML.
virt.define_xml_path PATH [ARGUMENT=VALUE ...]
    Define a VM from a file with libvirt's domain XML.
virt.define_xml_str XML [ARGUMENT=VALUE ...]
    Define a VM from libvirt's domain XML.
virt.domain_capabilities [emulator=EMULATOR] [arch=ARCH] [machine=MACHINE] [domain=DOMAIN]
        [ARGUMENT=VALUE ...]
    Return the capabilities of one kind of guest on this host.
virt.freecpu [ARGUMENT=VALUE ...]
    Return the host's CPUs minus those of running and paused VMs; negative if overcommitted.
virt.freemem [ARGUMENT=VALUE ...]
    Return the host's memory in MiB, minus 256 for itself and that of running and paused VMs.
virt.get_hypervisor
    Return the domain type that new VMs get here: 'kvm' or 'qemu', None if unknown.
virt.get_profiles [hypervisor=HYPERVISOR] [ARGUMENT=VALUE ...]
    Return the NIC and disk profiles of this host, the built-in ones included.
virt.is_hyper
    Return whether libvirt answers on this host.
virt.list_active_vms [ARGUMENT=VALUE ...]
    Return the names of the running VMs, sorted.
virt.list_domains [ARGUMENT=VALUE ...]
    Return the names of all VMs, running or not, sorted.
virt.list_inactive_vms [ARGUMENT=VALUE ...]
    Return the names of the VMs that are off, sorted.
virt.list_networks [ARGUMENT=VALUE ...]
    Return the names of all networks, sorted.
virt.list_pools [ARGUMENT=VALUE ...]
    Return the names of all storage pools, sorted.
virt.network_define NAME [bridge=unsaid] [forward=unsaid] [ipv4_config=IPV4_CONFIG]
        [ipv6_config=IPV6_CONFIG] [vport=VPORT] [tag=TAG] [autostart=True] [start=True]
        [mtu=MTU] [domain=DOMAIN] [nat=NAT] [interfaces=INTERFACES] [addresses=ADDRESSES]
        [physical_function=PHYSICAL_FUNCTION] [dns=DNS] [ARGUMENT=VALUE ...]
    Define a network of libvirt's, and start it.
virt.network_get_xml NAME [ARGUMENT=VALUE ...]
    Return a network's XML as libvirt has it.
virt.network_info [name=NAME] [ARGUMENT=VALUE ...]
    Return the state of all networks, or of one.
virt.network_set_autostart NAME [state=on] [ARGUMENT=VALUE ...]
    Start a network together with its host, or stop doing so.
virt.network_start NAME [ARGUMENT=VALUE ...]
    Start a network that is defined.
virt.network_stop NAME [ARGUMENT=VALUE ...]
    Stop a network; its definition stays.
virt.network_undefine NAME [ARGUMENT=VALUE ...]
    Remove a network's definition; a running network continues until it is stopped.
virt.network_update NAME [bridge=unsaid] [forward=unsaid] [ipv4_config=IPV4_CONFIG]
        [ipv6_config=IPV6_CONFIG] [vport=VPORT] [tag=TAG] [mtu=MTU] [domain=DOMAIN] [nat=NAT]
        [interfaces=INTERFACES] [addresses=ADDRESSES] [physical_function=PHYSICAL_FUNCTION]
        [dns=DNS] [test=False] [ARGUMENT=VALUE ...]
    Change a network's definition if it differs.
virt.node_devices [ARGUMENT=VALUE ...]
    Return this host's PCI and USB devices, which 'host_devices' can pass to a VM, and its
    links.
virt.node_info [ARGUMENT=VALUE ...]
    Return the host's processors and memory.
virt.pool_build NAME [ARGUMENT=VALUE ...]
    Make the folder, volume group or disk label of a stopped storage pool.
virt.pool_capabilities [ARGUMENT=VALUE ...]
    Return the types of storage pools that this host's libvirt supports.
virt.pool_define NAME PTYPE [target=TARGET] [permissions=PERMISSIONS]
        [source_devices=SOURCE_DEVICES] [source_dir=SOURCE_DIR]
        [source_initiator=SOURCE_INITIATOR] [source_adapter=SOURCE_ADAPTER]
        [source_hosts=SOURCE_HOSTS] [source_auth=SOURCE_AUTH] [source_name=SOURCE_NAME]
        [source_format=SOURCE_FORMAT] [transient=False] [start=True] [ARGUMENT=VALUE ...]
    Define a storage pool.
virt.pool_delete NAME [ARGUMENT=VALUE ...]
    Delete the empty folder or the volume group of a stopped storage pool.
virt.pool_get_xml NAME [ARGUMENT=VALUE ...]
    Return the XML of a storage pool; the password of its source is never in it.
virt.pool_info [name=NAME] [ARGUMENT=VALUE ...]
    Return information about storage pools.
virt.pool_list_volumes NAME [ARGUMENT=VALUE ...]
    Return the names of the volumes in a storage pool that runs.
virt.pool_refresh NAME [ARGUMENT=VALUE ...]
    Refresh libvirt's list of the volumes in a running storage pool.
virt.pool_set_autostart NAME [state=on] [ARGUMENT=VALUE ...]
    Start a storage pool together with its host, or stop doing so.
virt.pool_start NAME [ARGUMENT=VALUE ...]
    Start a storage pool.
virt.pool_stop NAME [ARGUMENT=VALUE ...]
    Stop a storage pool; its content stays, and running VMs keep their disks.
virt.pool_undefine NAME [ARGUMENT=VALUE ...]
    Remove the definition of a stopped storage pool, and the secret made for it.
virt.pool_update NAME PTYPE [target=TARGET] [permissions=PERMISSIONS]
        [source_devices=SOURCE_DEVICES] [source_dir=SOURCE_DIR]
        [source_initiator=SOURCE_INITIATOR] [source_adapter=SOURCE_ADAPTER]
        [source_hosts=SOURCE_HOSTS] [source_auth=SOURCE_AUTH] [source_name=SOURCE_NAME]
        [source_format=SOURCE_FORMAT] [test=False] [ARGUMENT=VALUE ...]
    Change the definition of a storage pool if it differs.
virt.virt_type
    Return the grain 'virtual': the virtualisation in which this host itself runs.
virt.volume_clone POOL VOLUME NAME [to_pool=TO_POOL] [format=FORMAT] [ARGUMENT=VALUE ...]
    Copy a volume into a new one without a backing file.
virt.volume_define POOL NAME SIZE [allocation=0] [format=FORMAT] [type=TYPE]
        [permissions=PERMISSIONS] [backing_store=BACKING_STORE] [nocow=False] [ARGUMENT=VALUE
        ...]
    Make a volume in a storage pool that runs.
virt.volume_download POOL VOLUME FILE [offset=0] [length=0] [sparse=False] [ARGUMENT=VALUE ...]
    Write the content of a volume into a new file of this host, which only root can read.
virt.volume_infos [pool=POOL] [volume=VOLUME] [ARGUMENT=VALUE ...]
    Return the volumes in running storage pools, with the VMs that use them.
"""


def read() -> dict[str, FunctionText]:
    """Return the functions by name; a text without further parts says where these are."""
    usages: list[str] = []
    sentences: list[str] = []
    for line in _TEXTS.strip().splitlines():
        if not line.startswith(" "):
            usages.append(line)
            sentences.append("")
        elif line.startswith("        "):
            usages[-1] += f" {line.strip()}"
        else:
            sentences[-1] = f"{sentences[-1]} {line.strip()}".strip()
    texts = (_text(*row) for row in zip(usages, sentences, strict=True))
    return {text.name: text for text in texts}


def _text(usage: str, sentence: str) -> FunctionText:
    name, _blank, words = usage.partition(" ")
    return FunctionText(
        name=name,
        words=(words,) if words else (),
        sentence=sentence,
        remarks=(f"A host has all about it: salt HOST sys.doc {name}",),
    )
