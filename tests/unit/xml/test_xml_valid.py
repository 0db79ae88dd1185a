"""
All XML for libvirt is valid by libvirt's own schemas, for all that a call can request.

Domains are in test_domain_golden.py, changed domains in test_update_xml.py, clones in
test_readdomain_foreign.py, pools of every type in test_storagepool.py.
"""

import ipaddress
import re
from pathlib import Path

import pytest
import saltvirt
from elements import maybe
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from saltvirt.libvirt import nat, networkspec, probe
from saltvirt.xml import parse, to_text
from saltvirt.xml.edit import clone
from saltvirt.xml.network import network
from saltvirt.xml.node import capabilities
from saltvirt.xml.storage import secret, snapshot, storagepool, storagevolume
from sizes import sizes
from test_readdomain_foreign import TEXTS
from test_storagepool import MODE, POOL_BY_TYPE

LIBRARY = Path(saltvirt.__file__).parent
# libvirt's calls with XML of this project, by the schema of that XML.
CALLS_BY_SCHEMA = {
    "domain": {"defineXML", "defineXMLFlags", "createXML"},
    "network": {"networkDefineXML"},
    "storagepool": {"storagePoolDefineXML", "storagePoolCreateXML"},
    "storagevol": {"createXML", "createXMLFrom"},
    "domainsnapshot": {"snapshotCreateXML"},
    "secret": {"secretDefineXML"},
}
# Any word of a user that names of DNS or of libvirt permit.
WORD = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9]", fullmatch=True)
LABEL = st.text(st.characters(codec="latin-1", categories=("L", "N", "P", "Zs")), min_size=1)
MACS = st.integers(0, 2**24 - 1).map(
    lambda n: f"52:54:00:{n >> 16:02x}:{n >> 8 & 255:02x}:{n & 255:02x}"
)
PORTS = st.integers(1, 65535)


def keys(**optional):
    """Return a strategy of mappings with any of some keys."""
    return st.fixed_dictionaries({}, optional=optional)


def spans(strategy):
    """Return a strategy of ``{start, end}``, in their order."""
    pairs = st.tuples(strategy, strategy).map(sorted)
    return pairs.map(lambda pair: {"start": str(pair[0]), "end": str(pair[1])})


@st.composite
def configs(draw, family):
    """Return a strategy of ``ipv4_config`` or ``ipv6_config``."""
    base, prefix = ("10.7.0.0", 24) if family == 4 else ("2001:db8:1::", 64)
    net = ipaddress.ip_network(f"{base}/{prefix}")
    addresses = st.integers(2, 200).map(lambda n: net[n])
    config = {"cidr": str(net)}
    config |= draw(keys(dhcp_ranges=st.lists(spans(addresses), max_size=2)))
    if family == 4:
        lease = st.fixed_dictionaries({"mac": MACS}, optional={"name": WORD})
        bootp = st.fixed_dictionaries({"file": WORD}, optional={"server": st.just("10.7.0.9")})
        config |= draw(keys(bootp=bootp, tftp=st.just("/srv/tftp")))
    else:
        lease = st.fixed_dictionaries({"id": st.just("0:1:0:1:18:aa:62:fe:0:16:3e:44:55:66")})
        lease |= st.fixed_dictionaries({"id": st.just("0:3:0:1:0:16:3e:11:22:33"), "name": WORD})
    hosts = st.dictionaries(addresses.map(str), lease, max_size=2)
    return config | draw(keys(hosts=hosts))


SRVS = st.fixed_dictionaries(
    {"name": WORD, "protocol": st.sampled_from(["tcp", "udp"])},
    optional={
        "domain": st.just("example.com"),
        "target": st.sampled_from([".", "host.example.com"]),
        "port": PORTS,
        "priority": PORTS,
        "weight": PORTS,
    },
)
FORWARDERS = st.sampled_from(
    [{"addr": "8.8.8.8"}, {"domain": "example.com"}, {"domain": "a.example", "addr": "2001:db8::1"}]
)
DNS = keys(
    forwarders=st.lists(FORWARDERS, max_size=2),
    txt=st.dictionaries(WORD, LABEL, max_size=2),
    hosts=st.dictionaries(
        st.sampled_from(["10.7.0.3", "2001:db8:1::3"]), st.lists(WORD, min_size=1, max_size=2)
    ),
    srvs=st.lists(SRVS, max_size=2),
)
ROUTED = {
    "ipv4_config": configs(4),
    "ipv6_config": configs(6),
    "dns": DNS,
    "mtu": st.integers(68, 65535),
    "domain": st.sampled_from(
        ["lab", {"name": "lab.example"}, {"name": "lab.example", "localOnly": True}]
    ),
}
NAT = keys(
    address=spans(st.integers(1, 200).map(lambda n: ipaddress.ip_address("1.2.3.0") + n)),
    port=spans(PORTS),
)
TAGS = st.integers(0, 4095) | st.fixed_dictionaries(
    {
        "tags": st.lists(
            st.fixed_dictionaries(
                {"id": st.integers(0, 4095)},
                optional={"nativeMode": st.sampled_from(["tagged", "untagged"])},
            ),
            min_size=1,
            max_size=3,
        )
    },
    optional={"trunk": st.just(True)},
)
VPORTS = st.sampled_from(
    [
        "openvswitch",
        {"type": "openvswitch", "parameters": {"profileid": "menial"}},
        {
            "type": "openvswitch",
            "parameters": {"interfaceid": "09b11c53-8b5c-4eeb-8f00-d84eaa0aaa4f"},
        },
        {"type": "802.1Qbh", "parameters": {"profileid": "finance"}},
        {
            "type": "802.1Qbg",
            "parameters": {"managerid": 11, "typeid": 1193047, "typeidversion": 2},
        },
        {
            "type": "midonet",
            "parameters": {"interfaceid": "09b11c53-8b5c-4eeb-8f00-d84eaa0aaa4f"},
        },
    ]
)
INTERFACES = st.lists(WORD, min_size=1, max_size=3)
PCI = st.lists(st.sampled_from(["0000:04:00.1", "0000:e3:01.2", "1:2:3.0"]), min_size=1, max_size=2)


def with_address(**optional):
    """Return a strategy of a network that leads elsewhere: it has at least one address."""
    strategies = {**ROUTED, **optional}
    families = ("ipv4_config", "ipv6_config")
    return st.one_of(
        st.fixed_dictionaries(
            {family: ROUTED[family]},
            optional={key: strategies[key] for key in strategies if key != family},
        )
        for family in families
    )


NETWORKS = st.one_of(
    st.tuples(maybe(WORD), st.just("nat"), with_address(nat=NAT)),
    st.tuples(maybe(WORD), st.sampled_from(["route", "open"]), with_address()),
    st.tuples(maybe(WORD), st.none(), keys(**ROUTED)),
    st.tuples(WORD, st.just("bridge"), keys(vport=VPORTS, tag=TAGS)),
    st.tuples(
        st.none(),
        st.sampled_from(["private", "vepa", "passthrough", "bridge"]),
        st.fixed_dictionaries({"interfaces": INTERFACES}, optional={"vport": VPORTS}),
    ),
    st.tuples(
        st.none(),
        st.just("hostdev"),
        st.fixed_dictionaries({"addresses": PCI}, optional={"vport": VPORTS, "tag": TAGS})
        | st.fixed_dictionaries({"physical_function": WORD}, optional={"tag": TAGS}),
    ),
)


def test_each_call_with_xml_has_its_schema_here():
    called_names = {
        name
        for path in LIBRARY.rglob("*.py")
        for name in re.findall(r"\.(\w+XML\w*)\(", path.read_text())
        if not re.search(r"XMLDesc|getXML|Capabilities", name)
    }

    assert called_names == set().union(*CALLS_BY_SCHEMA.values())


@sizes(quick=60, full=1000)
def test_every_network_is_valid_and_read_as_it_was_built(validate, size):
    texts = []

    @settings(max_examples=size, deadline=None, suppress_health_check=list(HealthCheck))
    @given(NETWORKS)
    def generate(request):
        bridge, forward, options = request
        spec = networkspec.from_call("lan", bridge, forward, options)
        texts.append(to_text(network.build(spec)))
        assert network.read(parse(texts[-1])) == spec

    generate()
    validate(texts, "network")


def test_the_network_with_nat_is_valid(validate):
    validate([nat.build_xml("default", nat.SUBNET), nat.build_xml("a", "10.0.0.0/29")], "network")


def test_every_snapshot_is_valid(validate):
    texts = []

    @settings(max_examples=20)
    @given(LABEL)
    def generate(name):
        texts.append(to_text(snapshot.build_new(name)))

    generate()
    validate(texts, "domainsnapshot")


@sizes(quick=25, full=300)
def test_every_volume_is_valid(validate, size):
    texts = []

    @settings(max_examples=size, deadline=None)
    @given(
        LABEL.filter(lambda text: text.strip() and "/" not in text),
        st.integers(0, 2**40),
        keys(
            allocation=st.integers(0, 2**40),
            format=st.sampled_from(["qcow2", "raw", "vmdk", "ext4", "none"]),
            # libvirt's schema has forgotten ploop.
            type=st.sampled_from(sorted({*storagevolume.TYPES} - {"ploop"})),
            requested_permissions=st.sampled_from([MODE, {"mode": "0600"}]),
            backing_store=st.just({"path": "/srv/base", "format": "qcow2"}),
            nocow=st.booleans(),
        ),
    )
    def generate(name, capacity, options):
        texts.append(
            to_text(storagevolume.build(storagevolume.from_call(name, capacity, **options)))
        )

    generate()
    validate(texts, "storagevol")


@pytest.mark.parametrize("mode", [None, MODE, {"mode": "0700"}])
def test_a_pool_that_is_changed_is_valid(validate, mode):
    texts = []
    for kind, (target, source) in POOL_BY_TYPE.items():
        old = storagepool.build(storagepool.from_call("p1", kind, target, MODE, source))
        uuid = "<uuid>6695eb01-f6a4-8304-79aa-97f2502e1001</uuid>"
        text = to_text(old).replace("</name>", f"</name>{uuid}", 1)
        foreign_part = "<features><cow state='no'/></features>" if kind in ("dir", "fs") else ""
        root = parse(text.replace("<source", f"{foreign_part}<source", 1))
        texts.append(
            to_text(
                storagepool.build_changed(
                    root, storagepool.from_call("p1", kind, target, mode, source)
                )
            )
        )

    validate(texts, "storagepool")


def test_every_secret_is_valid(validate):
    secrets = [
        secret.Secret(kind=kind, usage="pool_a b", description=words, is_ephemeral=is_ephemeral)
        for kind in ("ceph", "iscsi")
        for words in (None, "é <b>")
        for is_ephemeral in (True, False)
    ]

    validate((to_text(secret.build(secret_)) for secret_ in secrets), "secret")


@pytest.mark.parametrize("learns", [True, False])
def test_a_clone_of_salt_clouds_is_valid(validate, learns):
    texts = []
    # libvirt's schema on this machine is older than this domain.
    for text in (text for name, text in TEXTS.items() if name != "running13"):
        files = {path: f"{path}.new" for path in clone.exclusive_files(text)}
        if len(files) == len(clone.exclusive_disks(parse(text))):
            texts.append(clone.domain(text, "web2", "web1", files, learn_addresses=learns))

    assert texts
    validate(texts)


def test_the_guest_that_proves_kvm_is_valid(validate):
    validate(
        probe._DOMAIN.strip().format(kind="kvm", arch="x86_64", machine=machine, disk="/run/x")
        for machine in probe.MACHINES
    )


def test_the_cpu_that_is_compared_is_valid(validate):
    capabilities_xml = """<domainCapabilities><arch>x86_64</arch><cpu>
    <mode name='host-model' supported='yes'><model fallback='forbid'>Skylake-Client-IBRS</model>
    <vendor>Intel</vendor><maxphysaddr mode='passthrough'/>
    <feature policy='require' name='ss'/><feature policy='disable' name='hle'/></mode></cpu>
    </domainCapabilities>"""

    validate([capabilities.host_model(capabilities_xml)], "cpu")
