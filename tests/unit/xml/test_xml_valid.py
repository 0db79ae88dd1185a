"""
All that we give libvirt is valid by its own schemas, over all that can be asked for.

Domains are in test_domain_golden.py, changed ones in test_update_xml.py, clones' in
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
from test_storagepool import EVERY, MODE

LIBRARY = Path(saltvirt.__file__).parent
# The calls that give libvirt XML of ours, by the schema of what they take.
GIVEN = {
    "domain": {"defineXML", "defineXMLFlags", "createXML"},
    "network": {"networkDefineXML"},
    "storagepool": {"storagePoolDefineXML", "storagePoolCreateXML"},
    "storagevol": {"createXML", "createXMLFrom"},
    "domainsnapshot": {"snapshotCreateXML"},
    "secret": {"secretDefineXML"},
}
# Any text of a user's, as long as a name of DNS or of libvirt may have it.
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
    return pairs.map(lambda two: {"start": str(two[0]), "end": str(two[1])})


@st.composite
def configs(draw, family):
    """Return a strategy of ``ipv4_config`` or ``ipv6_config``."""
    base, prefix = ("10.7.0.0", 24) if family == 4 else ("2001:db8:1::", 64)
    net = ipaddress.ip_network(f"{base}/{prefix}")
    addresses = st.integers(2, 200).map(lambda n: net[n])
    out = {"cidr": str(net)}
    out |= draw(keys(dhcp_ranges=st.lists(spans(addresses), max_size=2)))
    if family == 4:
        lease = st.fixed_dictionaries({"mac": MACS}, optional={"name": WORD})
        bootp = st.fixed_dictionaries({"file": WORD}, optional={"server": st.just("10.7.0.9")})
        out |= draw(keys(bootp=bootp, tftp=st.just("/srv/tftp")))
    else:
        lease = st.fixed_dictionaries({"id": st.just("0:1:0:1:18:aa:62:fe:0:16:3e:44:55:66")})
        lease |= st.fixed_dictionaries({"id": st.just("0:3:0:1:0:16:3e:11:22:33"), "name": WORD})
    hosts = st.dictionaries(addresses.map(str), lease, max_size=2)
    return out | draw(keys(hosts=hosts))


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
    """Return a strategy of what a network has that leads elsewhere: an address at least."""
    more = {**ROUTED, **optional}
    families = ("ipv4_config", "ipv6_config")
    return st.one_of(
        st.fixed_dictionaries({one: ROUTED[one]}, optional={k: more[k] for k in more if k != one})
        for one in families
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


def test_each_call_that_gives_libvirt_xml_has_its_schema_here():
    called = {
        found
        for path in LIBRARY.rglob("*.py")
        for found in re.findall(r"\.(\w+XML\w*)\(", path.read_text())
        if not re.search(r"XMLDesc|getXML|Capabilities", found)
    }

    assert called == set().union(*GIVEN.values())


@sizes(quick=60, full=1000)
def test_every_network_is_valid_and_read_as_it_was_built(validate, size):
    made = []

    @settings(max_examples=size, deadline=None, suppress_health_check=list(HealthCheck))
    @given(NETWORKS)
    def generate(asked):
        bridge, forward, more = asked
        one = networkspec.from_call("lan", bridge, forward, more)
        made.append(to_text(network.build(one)))
        assert network.read(parse(made[-1])) == one

    generate()
    validate(made, "network")


def test_the_network_with_nat_is_valid(validate):
    validate([nat.build_xml("default", nat.SUBNET), nat.build_xml("a", "10.0.0.0/29")], "network")


def test_every_snapshot_is_valid(validate):
    made = []

    @settings(max_examples=20)
    @given(LABEL)
    def generate(name):
        made.append(to_text(snapshot.build_new(name)))

    generate()
    validate(made, "domainsnapshot")


@sizes(quick=25, full=300)
def test_every_volume_is_valid(validate, size):
    made = []

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
    def generate(name, capacity, more):
        made.append(to_text(storagevolume.build(storagevolume.from_call(name, capacity, **more))))

    generate()
    validate(made, "storagevol")


@pytest.mark.parametrize("mode", [None, MODE, {"mode": "0700"}])
def test_a_pool_that_is_changed_is_valid(validate, mode):
    made = []
    for kind, (target, source) in EVERY.items():
        old = storagepool.build(storagepool.from_call("p1", kind, target, MODE, source))
        uuid = "<uuid>6695eb01-f6a4-8304-79aa-97f2502e1001</uuid>"
        text = to_text(old).replace("</name>", f"</name>{uuid}", 1)
        kept = "<features><cow state='no'/></features>" if kind in ("dir", "fs") else ""
        root = parse(text.replace("<source", f"{kept}<source", 1))
        made.append(
            to_text(
                storagepool.build_changed(
                    root, storagepool.from_call("p1", kind, target, mode, source)
                )
            )
        )

    validate(made, "storagepool")


def test_every_secret_is_valid(validate):
    made = [
        secret.Secret(kind=kind, usage="pool_a b", description=words, is_ephemeral=is_ephemeral)
        for kind in ("ceph", "iscsi")
        for words in (None, "é <b>")
        for is_ephemeral in (True, False)
    ]

    validate((to_text(secret.build(one)) for one in made), "secret")


@pytest.mark.parametrize("learns", [True, False])
def test_a_clone_of_salt_clouds_is_valid(validate, learns):
    made = []
    # The schema here is older than one of the domains.
    for text in (text for name, text in TEXTS.items() if name != "running13"):
        files = {path: f"{path}.new" for path in clone.exclusive_files(text)}
        if len(files) == len(clone.exclusive_disks(parse(text))):
            made.append(clone.domain(text, "web2", "web1", files, learn_addresses=learns))

    assert made
    validate(made)


def test_the_guest_that_proves_kvm_is_valid(validate):
    validate(
        probe._DOMAIN.strip().format(kind="kvm", arch="x86_64", machine=one, disk="/run/x")
        for one in probe.MACHINES
    )


def test_the_cpu_that_is_compared_is_valid(validate):
    says = """<domainCapabilities><arch>x86_64</arch><cpu>
    <mode name='host-model' supported='yes'><model fallback='forbid'>Skylake-Client-IBRS</model>
    <vendor>Intel</vendor><maxphysaddr mode='passthrough'/>
    <feature policy='require' name='ss'/><feature policy='disable' name='hle'/></mode></cpu>
    </domainCapabilities>"""

    validate([capabilities.host_model(says)], "cpu")
