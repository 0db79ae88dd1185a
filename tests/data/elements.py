"""What every element of a domain can say, as strategies of hypothesis."""

from dataclasses import replace

from hypothesis import strategies as st
from saltvirt.xml.domain import (
    chardev,
    clock,
    controller,
    cpu,
    cputune,
    disk,
    domain,
    features,
    graphics,
    hostdev,
    memory,
    metadata,
    nic,
    numatune,
    osboot,
    rng,
    sysinfo,
    tpm,
    vcpu,
    video,
)
from saltvirt.xml.network import network
from saltvirt.xml.storage import poolsource, secret, storagepool, storagevolume

# What XML can hold; an attribute keeps a tab and a newline too.
PRINTABLE = st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\ufffe\uffff")
TEXT = st.text(PRINTABLE, min_size=1, max_size=12)
VALUE = st.text(PRINTABLE | st.sampled_from("\t\n<&'\""), max_size=12)
BAG = st.dictionaries(st.from_regex(r"[a-z][a-zA-Z]{0,7}", fullmatch=True), VALUE, max_size=3)
KIB = st.integers(0, 2**60)
FLAG = st.none() | st.booleans()


def some(strategy):
    """Return a strategy of tuples."""
    return st.lists(strategy, max_size=3).map(tuple)


def maybe(strategy):
    """Return a strategy that is None, too."""
    return st.none() | strategy


def rows(names):
    """Return a strategy of rows: an element's name and its attributes."""
    return some(st.tuples(st.sampled_from(names), BAG))


VLANS = st.builds(nic.Vlan, is_trunk=st.booleans(), tags=some(st.tuples(VALUE, maybe(VALUE))))
PORTS = st.builds(nic.Port, type=maybe(VALUE), parameters=maybe(BAG))
FILTERS = st.builds(
    nic.Filter, name=maybe(VALUE), parameters=some(st.tuples(maybe(VALUE), maybe(VALUE)))
)
NICS = st.builds(
    nic.Interface,
    type=maybe(VALUE),
    managed=FLAG,
    source=maybe(BAG.filter(bool)),
    address=maybe(BAG),
    mac=maybe(VALUE),
    mtu=maybe(VALUE),
    vlan=maybe(VLANS),
    virtualport=maybe(PORTS),
    bandwidth=maybe(st.dictionaries(st.sampled_from(["inbound", "outbound"]), BAG)),
    filter=maybe(FILTERS),
    model=maybe(VALUE),
    driver=maybe(BAG),
)
LOGINS = st.builds(disk.Auth, username=maybe(VALUE), secret=BAG)
BACKINGS = st.recursive(
    st.builds(disk.Backing, type=maybe(VALUE), format=maybe(VALUE), source=BAG),
    lambda below: st.builds(disk.Backing, format=maybe(VALUE), source=BAG, below=below),
    max_leaves=3,
)
DISKS = st.builds(
    disk.Disk,
    type=maybe(VALUE),
    device=VALUE,
    driver=maybe(BAG),
    source=maybe(BAG),
    hosts=some(BAG),
    auth=maybe(LOGINS),
    backing=maybe(BACKINGS),
    target=BAG,
    is_readonly=st.booleans(),
    serial=maybe(TEXT),
    # An empty drive has no servers, and nobody logs in there.
).map(lambda one: one if one.source is not None else replace(one, hosts=(), auth=None))
PAGES = st.builds(memory.Page, size_kib=maybe(KIB), nodeset=maybe(VALUE))
MEMORY_BACKINGS = st.builds(
    memory.Backing,
    hugepages=maybe(some(PAGES)),
    nosharepages=st.booleans(),
    locked=st.booleans(),
    source=maybe(BAG),
    access=maybe(BAG),
    allocation=maybe(BAG),
    discard=st.booleans(),
)
MEMORIES = st.builds(
    memory.Memory,
    size_kib=KIB,
    current_kib=KIB,
    maximum_kib=KIB,
    slots=maybe(VALUE),
    backing=MEMORY_BACKINGS,
    limits_kib=st.dictionaries(st.sampled_from(["hard_limit", "min_guarantee"]), KIB),
) | st.builds(memory.Memory, size_kib=KIB, current_kib=KIB)
TUNES = st.builds(numatune.Numatune, memory=maybe(BAG), memnodes=some(BAG))
VCPU_STATES = st.builds(vcpu.Vcpu, id=VALUE, enabled=FLAG, hotpluggable=FLAG, order=maybe(VALUE))
VCPUS = st.builds(
    vcpu.Vcpus,
    maximum=TEXT,
    attributes=BAG,
    states=some(VCPU_STATES),
    iothreads=maybe(TEXT),
)
PARTS = st.builds(
    cputune.Part,
    name=st.sampled_from(["cachetune", "memorytune"]),
    vcpus=maybe(VALUE),
    rows=rows(["cache", "monitor", "node"]),
)
CPUTUNES = st.builds(
    cputune.Cputune,
    numbers=st.dictionaries(st.sampled_from(["shares", "quota"]), TEXT),
    pins=rows(["vcpupin", "emulatorpin", "iothreadpin"]),
    scheds=rows(["vcpusched", "iothreadsched", "emulatorsched"]),
    parts=some(PARTS),
)
MODELS = st.builds(cpu.Model, name=maybe(TEXT), attributes=BAG)
CELLS = st.builds(
    cpu.Cell,
    id=maybe(VALUE),
    cpus=maybe(VALUE),
    memory_kib=maybe(KIB),
    mem_access=maybe(VALUE),
    discard=FLAG,
    distances=some(BAG),
)
CPUS = st.builds(
    cpu.Cpu,
    attributes=BAG,
    model=maybe(MODELS),
    vendor=maybe(TEXT),
    topology=maybe(BAG),
    cache=maybe(BAG),
    features=st.dictionaries(VALUE, maybe(VALUE), max_size=3),
    cells=some(CELLS),
)
TIMERS = st.builds(clock.Timer, attributes=BAG, catchup=maybe(BAG))
CLOCKS = st.builds(clock.Clock, attributes=BAG, timers=some(TIMERS))
FEATURES = st.builds(
    features.Features,
    acpi=st.booleans(),
    apic=st.booleans(),
    pae=st.booleans(),
    hint_dedicated=FLAG,
)
GRAPHICS = st.builds(
    graphics.Graphics,
    type=maybe(VALUE),
    port=maybe(VALUE),
    autoport=FLAG,
    tls_port=maybe(VALUE),
    password=maybe(VALUE),
    keymap=maybe(VALUE),
    listen=maybe(BAG),
)
VIDEOS = st.builds(video.Video, model=maybe(BAG))
LOADERS = st.builds(osboot.Loader, path=maybe(TEXT), attributes=BAG)
# A file or a source, never both.
NVRAMS = st.builds(osboot.Nvram, path=maybe(TEXT), attributes=BAG) | st.builds(
    osboot.Nvram, attributes=BAG, source=BAG
)
SYSTEMS = st.builds(
    osboot.Os,
    type=maybe(TEXT),
    arch=maybe(VALUE),
    machine=maybe(VALUE),
    firmware=maybe(VALUE),
    loader=maybe(LOADERS),
    nvram=maybe(NVRAMS),
    kernel=maybe(TEXT),
    initrd=maybe(TEXT),
    cmdline=maybe(TEXT),
    boot=some(VALUE),
)
CHARDEVS = st.builds(
    chardev.Chardev,
    element=st.sampled_from(chardev.ELEMENTS),
    type=maybe(VALUE),
    source=maybe(BAG),
    protocol=maybe(BAG),
    log=maybe(BAG),
    target=maybe(BAG),
)
HOSTDEVS = st.builds(
    hostdev.Hostdev,
    type=maybe(VALUE),
    mode=maybe(VALUE),
    managed=FLAG,
    address=maybe(BAG),
    vendor=maybe(BAG),
    product=maybe(BAG),
)
CONTROLLERS = st.builds(
    controller.Controller, type=maybe(VALUE), index=maybe(VALUE), model=maybe(VALUE)
)
RNGS = st.builds(rng.Rng, model=maybe(VALUE), backend=BAG, path=maybe(TEXT))
ENTRIES = st.builds(sysinfo.Entry, name=maybe(VALUE), text=maybe(TEXT), file=maybe(VALUE))
SYSINFOS = st.builds(sysinfo.Sysinfo, type=maybe(VALUE), entries=some(ENTRIES))
BACKENDS = st.builds(tpm.Backend, attributes=BAG, source=maybe(BAG))
TPMS = st.builds(tpm.Tpm, model=maybe(VALUE), backend=maybe(BACKENDS))
NOTES = st.builds(
    metadata.Notes,
    disk_mib=st.integers(0, 2**60),
    seed=maybe(VALUE),
    stay=st.booleans(),
    cpu_qemu=maybe(VALUE),
    moved_to=maybe(VALUE),
    ssh_user=maybe(VALUE),
    affinity=some(TEXT),
    former=some(TEXT),
    anti_affinity=some(TEXT),
    made=maybe(some(TEXT)),
    made_variables=st.booleans(),
    created=st.none() | st.integers(0, 10**11 - 1),
)
DOMAINS = st.builds(
    domain.Domain,
    type=maybe(VALUE),
    name=maybe(TEXT),
    uuid=maybe(TEXT),
    notes=NOTES,
    memory=MEMORIES,
    vcpus=VCPUS,
    cputune=maybe(CPUTUNES),
    numatune=maybe(TUNES),
    os=SYSTEMS,
    features=FEATURES,
    cpu=maybe(CPUS),
    clock=CLOCKS,
    on_poweroff=maybe(TEXT),
    on_reboot=maybe(TEXT),
    on_crash=maybe(TEXT),
    controllers=some(CONTROLLERS),
    disks=some(DISKS),
    interfaces=some(NICS),
    chardevs=some(CHARDEVS),
    graphics=some(GRAPHICS),
    videos=some(VIDEOS),
    hostdevs=some(HOSTDEVS),
    rngs=some(RNGS),
)
PERMISSIONS = st.fixed_dictionaries(
    {}, optional={"mode": st.just("0711"), "owner": st.just("107"), "label": TEXT}
)
ADAPTERS = st.builds(poolsource.Adapter, attributes=BAG, unique_id=maybe(VALUE), address=maybe(BAG))
POOL_LOGINS = st.builds(poolsource.Auth, type=maybe(VALUE), username=maybe(VALUE), secret=BAG)
SOURCES = st.builds(
    poolsource.Source,
    hosts=some(BAG),
    devices=some(BAG),
    dir=maybe(VALUE),
    adapter=maybe(ADAPTERS),
    auth=maybe(POOL_LOGINS),
    name=maybe(TEXT),
    format=maybe(VALUE),
    initiator=maybe(VALUE),
)
POOLS = st.builds(
    storagepool.Pool,
    type=VALUE,
    name=TEXT,
    uuid=maybe(TEXT),
    source=SOURCES,
    target=maybe(TEXT),
    permissions=maybe(PERMISSIONS),
)
SECRETS = st.builds(
    secret.Secret,
    kind=st.sampled_from(["ceph", "iscsi"]),
    usage=TEXT,
    description=maybe(TEXT),
    is_ephemeral=st.booleans(),
    is_private=st.booleans(),
)
VOLUME_BACKINGS = st.builds(storagevolume.Backing, path=TEXT, format=maybe(VALUE))
VOLUMES = st.builds(
    storagevolume.Volume,
    name=TEXT,
    type=maybe(VALUE),
    key=maybe(TEXT),
    capacity=st.integers(0, 2**63 - 1),
    allocation=maybe(st.integers(0, 2**63 - 1)),
    path=maybe(TEXT),
    format=maybe(VALUE),
    permissions=maybe(PERMISSIONS),
    is_nocow=st.booleans(),
    backing=maybe(VOLUME_BACKINGS),
)
PAIRS = st.tuples(VALUE, VALUE)
ROWS = some(BAG.map(lambda attributes: tuple(sorted(attributes.items()))))
DNS = st.builds(
    network.Dns,
    forwarders=ROWS,
    txt=ROWS,
    hosts=some(st.tuples(VALUE, some(TEXT))),
    srvs=ROWS,
)
IPS = st.builds(
    network.Ip,
    address=st.sampled_from(["192.0.2.1", "2001:db8::1"]),
    prefix=st.integers(1, 32),
    tftp=maybe(VALUE),
    ranges=some(PAIRS),
    hosts=ROWS,
    bootp=maybe(BAG.map(lambda attributes: tuple(sorted(attributes.items())))),
)
FORWARDED = {
    "forward": VALUE,
    "nat_addresses": maybe(PAIRS),
    "nat_ports": maybe(PAIRS),
    "interfaces": some(VALUE),
    "addresses": some(st.sampled_from(["0000:03:00.0", "0001:1f:02.7"])),
    "physical_function": maybe(VALUE),
}
NETWORK = {
    "name": TEXT,
    "uuid": maybe(TEXT),
    "bridge": maybe(VALUE),
    "mtu": maybe(st.integers(68, 65535)),
    "mac": maybe(VALUE),
    "domain": maybe(st.tuples(VALUE, FLAG)),
    "dns": maybe(DNS),
    "ips": some(IPS),
    "virtualport": maybe(PORTS),
    "vlan": maybe(VLANS),
}
NETWORKS = st.builds(network.Network, **NETWORK) | st.builds(
    network.Network, **NETWORK, **FORWARDED
)
# The declared classes, and a strategy of what each can say.
DECLARED = {
    chardev.Chardev: CHARDEVS,
    clock.Clock: CLOCKS,
    clock.Timer: TIMERS,
    controller.Controller: CONTROLLERS,
    cpu.Cell: CELLS,
    cpu.Cpu: CPUS,
    cpu.Model: MODELS,
    cputune.Cputune: CPUTUNES,
    cputune.Part: PARTS,
    disk.Auth: LOGINS,
    disk.Backing: BACKINGS,
    disk.Disk: DISKS,
    features.Features: FEATURES,
    graphics.Graphics: GRAPHICS,
    hostdev.Hostdev: HOSTDEVS,
    memory.Backing: MEMORY_BACKINGS,
    memory.Memory: MEMORIES,
    memory.Page: PAGES,
    metadata.Notes: NOTES,
    network.Dns: DNS,
    network.Ip: IPS,
    network.Network: NETWORKS,
    nic.Filter: FILTERS,
    nic.Interface: NICS,
    nic.Port: PORTS,
    nic.Vlan: VLANS,
    numatune.Numatune: TUNES,
    osboot.Loader: LOADERS,
    osboot.Nvram: NVRAMS,
    osboot.Os: SYSTEMS,
    poolsource.Adapter: ADAPTERS,
    poolsource.Auth: POOL_LOGINS,
    poolsource.Source: SOURCES,
    rng.Rng: RNGS,
    storagepool.Pool: POOLS,
    storagevolume.Backing: VOLUME_BACKINGS,
    storagevolume.Volume: VOLUMES,
    sysinfo.Entry: ENTRIES,
    sysinfo.Sysinfo: SYSINFOS,
    tpm.Backend: BACKENDS,
    tpm.Tpm: TPMS,
    vcpu.Vcpu: VCPU_STATES,
    vcpu.Vcpus: VCPUS,
    video.Video: VIDEOS,
}
