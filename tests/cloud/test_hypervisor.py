"""A bare host becomes a hypervisor by one command, as docs/add-a-hypervisor.md says."""

import subprocess
import time

import pytest
from cloudkit import TINY, how_to, port, reach
from labkit import node

HOST, ADDRESS = "hyper4", "10.77.1.4"
# Each is applied alone nightly; "keys", which is most often, each time.
OTHER_PARTS = "modules packages bridge libvirt storage nat sysctl firewall".split()
PILLAR = {"hypervisor": {"bridges": {"br0": {"ports": ["eth0"]}}}}
SIGN = """set -e
rm -rf /tmp/sv-sign; mkdir /tmp/sv-sign; cd /tmp/sv-sign
ca={ca}
openssl req -newkey rsa:2048 -nodes -keyout clientkey.pem -out c.csr -subj '{subject}' 2>/dev/null
printf 'keyUsage=digitalSignature,keyEncipherment\\nextendedKeyUsage=clientAuth\\n' > ext
openssl x509 -req -in c.csr -CA $ca/cacert.pem -CAkey $ca/cakey.pem -CAcreateserial \
    -CAserial serial -out clientcert.pem -extfile ext {dates} 2>/dev/null
cp $ca/cacert.pem cacert.pem
"""
OURS = "/OU=salt-virt hypervisor/CN=hyper1"


def highstate(cloud, sls, *words):
    """Apply an SLS to the host; return its states by id."""
    done = cloud.salt(HOST, "state.apply", sls, *words)
    assert isinstance(done.data[HOST], dict), done.data
    return {state["__id__"]: state for state in done.data[HOST].values()}


def wrong(states):
    """Return the states that failed, and what they say."""
    return {name: s["comment"] for name, s in states.items() if s["result"] is not True}


@pytest.fixture(scope="module")
def made(cloud):
    """A bare host, made a hypervisor; how long that took until the runner saw it."""
    cloud.lab_command("bare", HOST)
    with cloud.pillar(HOST, PILLAR):
        assert HOST not in cloud.run("virt.host_info").data
        done, begin = [], time.monotonic()
        for program, *words in how_to("add-a-hypervisor.md", newhost=HOST):
            done.append((words, cloud.command(program, *words)))
            if words[0] == "virt.host_info":
                seconds = time.monotonic() - begin
        yield {"done": done, "seen": cloud.run("virt.host_info").data, "seconds": seconds}
        cloud.lab_command("remove", HOST)


@pytest.mark.second_nightly
def test_the_how_to_makes_it_a_hypervisor_that_the_runner_shows(cloud, made, capsys):
    for words, it in made["done"]:
        # The states that failed, and not the first lines of all.
        said = it.out.partition("Result: False")
        assert it.code == 0, f"{words}: {said[0][-300:]}{said[1]}{said[2][:2000]}{it.err}"
    assert ["state.apply", "hypervisor"] in [words[1:3] for words, _it in made["done"]]
    assert HOST in made["seen"] and "br0" in made["seen"][HOST]["bridges"]
    assert "default" in made["seen"][HOST]["storage"]["pools"]
    with capsys.disabled():
        print(f"\nbare host to virt.host_info: {made['seconds']:.1f} s")


@pytest.mark.second_nightly
def test_the_second_run_changes_nothing(cloud, made):
    states = highstate(cloud, "hypervisor")

    assert wrong(states) == {}
    assert {name: s["changes"] for name, s in states.items() if s["changes"]} == {}


@pytest.mark.parametrize(
    "part",
    ["keys", *(pytest.param(one, marks=pytest.mark.nightly) for one in OTHER_PARTS)],
)
def test_every_part_can_be_applied_alone(cloud, made, part):
    assert wrong(highstate(cloud, f"hypervisor.{part}")) == {}


def test_it_can_look_into_images(cloud, made):
    # Of the system's own Python, whose binding the appliance's worker uses.
    assert cloud.sh(HOST, "/usr/bin/python3 -c 'import guestfs; print(guestfs.__name__)'").split()


def test_it_runs_a_vm(cloud, made):
    done = cloud.run("virt.init", "h4", "1", "96", TINY, f"host={HOST}", "wait=False", "seed=False")
    try:
        assert (done.data["name"], done.data["host"]) == ("h4", HOST)
        assert cloud.local(HOST, "virt.vm_state", "h4") == {"h4": "running"}
    finally:
        assert cloud.run("virt.purge", "h4").code == 0


@pytest.mark.parametrize(
    ("interface", "kind", "source"),
    [
        ("{name: eth0, filter: {ip: [10.77.9.9]}}", "bridge", "br0"),
        pytest.param(
            "{name: eth0, type: direct, source: br0, mode: bridge}",
            "direct",
            "br0",
            marks=pytest.mark.skip(reason="a node has no udev, which makes macvtap's device"),
        ),
        ("{name: eth0, mtu: 1400}", "bridge", "br0"),
    ],
)
def test_a_nic_of_every_kind_that_this_kernel_has_comes_up(cloud, made, interface, kind, source):
    words = ("virt.init", "n4", "1", "96", TINY, f"interfaces=[{interface}]", "seed=False")
    try:
        assert cloud.local(HOST, *words) is True
        row = cloud.sh(HOST, "virsh -q domiflist n4").split()
        assert (row[1], row[2]) == (kind, source)
    finally:
        cloud.local(HOST, "virt.purge", "n4")


@pytest.mark.parametrize(
    ("interface", "why"),
    [
        ("{name: eth0, filter: nosuch}", "no filter 'nosuch' on this host; it has: allow-arp"),
        ("{name: vf, type: hostdev, source: '0000:99:10.0'}", "no PCI device 0000:99:10.0"),
        ("{name: e1, type: direct, source: eno9}", "no link eno9 there"),
        ("{name: eth0, vlan: 7}", "libvirt 9.0.0 there cannot tag VLANs on a Linux bridge"),
        ("{name: eth0, vlan: 5000}", "vlan: 5000 is out of range"),
    ],
)
def test_a_nic_that_cannot_be_is_refused_before_anything_is_built(cloud, made, interface, why):
    before = cloud.sh(HOST, "ls -R /srv/salt-images")
    done = cloud.call(HOST, "virt.init", "n4", "1", "96", TINY, f"interfaces=[{interface}]")

    assert done.code != 0 and why in done.out + done.err
    assert cloud.sh(HOST, "ls -R /srv/salt-images") == before
    assert cloud.sh(HOST, "virsh -q list --all --name").split() == []


@pytest.mark.second_nightly
def test_tls_works_in_both_directions(cloud, made):
    assert reach(cloud, "hyper1", HOST) == (0, HOST)
    assert reach(cloud, HOST, "hyper1") == (0, "hyper1")


@pytest.mark.parametrize(
    ("subject", "dates", "is_let_in"),
    [
        (OURS, "-days 2", True),
        ("/CN=hyper1", "-days 2", False),
        ("/CN=web1/OU=salt-virt hypervisor", "-days 2", False),
        ("/O=salt-virt hypervisor/CN=web1", "-days 2", False),
        (OURS, "-days -1", False),
    ],
    ids=["ours", "plain minion", "unit behind", "other field", "expired"],
)
def test_only_hypervisors_are_let_in_whatever_else_the_ca_signed(
    cloud, made, subject, dates, is_let_in
):
    with cloud.lent_ca("hyper1") as ca:
        cloud.sh("hyper1", SIGN.format(ca=ca, subject=subject, dates=dates))

    code, text = reach(cloud, "hyper1", HOST, "?pkipath=/tmp/sv-sign")

    assert (code == 0) == is_let_in, text
    cloud.sh("hyper1", "rm -rf /tmp/sv-sign")


@pytest.mark.parametrize("backend", ["iptables", "nftables"])
def test_the_ports_are_open_to_the_other_hypervisors_only(cloud, made, backend):
    listen = node.enter(
        cloud.pids[HOST],
        [
            "python3",
            "-c",
            "import socket, sys\n"
            "s = socket.create_server(('', 49152)); print(1, flush=True)\n"
            "sys.stdin.read()",
        ],
    )
    if backend == "iptables":
        cloud.salt(HOST, "state.single", "virt.firewall_absent", "salt_virt")
    words = ["salt_virt", "ports=[16514, 49152-49215]", f"backend={backend}"]

    done = cloud.salt(HOST, "state.single", "virt.firewall_present", *words)
    again = cloud.salt(HOST, "state.single", "virt.firewall_present", *words)

    assert done.code == 0, done.out
    assert next(iter(again.data[HOST].values()))["changes"] == {}
    with subprocess.Popen(
        listen, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as listener:
        assert listener.stdout.readline() == "1\n"
        numbers = (16514, 49152)
        assert [port(cloud, "hyper1", ADDRESS, number) for number in numbers] == ["open", "open"]
        assert [port(cloud, "master", ADDRESS, number) for number in numbers] == ["refused"] * 2
        # Nobody listens: no drop of other ports.
        assert port(cloud, "master", ADDRESS, 49300) == "refused"
    if backend == "iptables":
        gone = cloud.salt(
            HOST, "state.single", "virt.firewall_absent", "salt_virt", "backend=iptables"
        )
        assert gone.code == 0 and "SALT-VIRT" not in cloud.sh(HOST, "iptables -S")
        assert port(cloud, "master", ADDRESS, 16514) == "open"


def test_a_table_that_drops_is_named(cloud, made):
    cloud.sh(
        HOST,
        "nft add table inet mine; "
        "nft add chain inet mine in '{ type filter hook input priority 5; policy drop; }'; "
        "nft add rule inet mine in tcp sport 4505-4506 accept; "
        "nft add rule inet mine in iif lo accept",
    )
    try:
        done = cloud.salt(
            HOST, "state.single", "virt.firewall_present", "salt_virt", "ports=[16514, 49152-49215]"
        )
    finally:
        cloud.sh(HOST, "nft delete table inet mine")

    state = next(iter(done.data[HOST].values()))
    assert state["result"] is True
    assert "the chain inet mine in drops what it does not accept" in state["warnings"][0]


def test_the_master_killed_while_all_hosts_ask_leaves_a_sound_ca(cloud, made):
    asking = cloud.begin("virt_pki.renew")
    time.sleep(1.2)
    cloud.kill("master", "salt-master")
    cloud.signal("master", "salt-run", "KILL")  # unless it has ended by itself
    asking.communicate()
    cloud.service("master", "salt-master", "start")
    cloud.ready([*cloud.hosts, HOST])

    renewed = cloud.run("virt_pki.renew")

    assert renewed.code == 0, renewed.out
    rows = cloud.run("virt_pki.list").data
    serials = [row["serial"] for row in rows]
    assert len(serials) == len(set(serials))
    assert len([row for row in rows if row["state"] == "good"]) == 4 * 4
    checked = cloud.sh(
        "hyper1",
        "openssl verify -CAfile /etc/pki/CA/cacert.pem /etc/pki/libvirt/servercert.pem; "
        "openssl verify -CAfile /etc/pki/qemu/ca-cert.pem /etc/pki/qemu/client-cert.pem",
    )
    assert checked.count(": OK") == 2
    assert reach(cloud, "hyper1", HOST) == (0, HOST)
