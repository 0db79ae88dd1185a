"""A check of the setup finds nothing that VMs need on a lab, and each gap that is planted on it."""

import pytest

CA = "/etc/salt/pki/master/libvirt"
EXTMODS = "/var/cache/salt/minion/extmods"
CODE = f"{EXTMODS}/utils/saltvirt/core/units.py"
PLANTED_CONF = "/etc/salt/{}.d/zz-planted.conf"
READY = "nothing that VMs need is missing: salt-run virt.init NAME 1 512 IMAGE"
RESTART = "systemctl restart salt-minion"
DROP = (
    "nft add table inet planted; "
    "nft add chain inet planted input '{ type filter hook input priority -5; }'; "
    "nft add rule inet planted input tcp dport 16514 drop"
)
ONEDIR = "/opt/saltstack/salt/bin/python3"
SOCKETS = "libvirtd.socket libvirtd-ro.socket libvirtd-admin.socket"


def option(text):
    """Return scripts that set an option of the master, as if it had been there at its start."""
    path = PLANTED_CONF.format("master")
    return "master", f"echo '{text}' >{path}; touch -d 2000-01-01 {path}", f"rm {path}"


def of_host(host, text):
    """Return scripts that set an option of a host."""
    path = PLANTED_CONF.format("minion")
    return host, f"echo '{text}' >{path}; {RESTART}", f"rm {path}; {RESTART}"


def moved(host, path):
    """Return scripts that take a file away, and put it back if nothing else did."""
    kept = f"{path}.kept"
    return host, f"mv {path} {kept}", f"rm -rf {path}; mv {kept} {path}"


# Where and how it is planted, how it is taken back, what is found where; and whether its fix, a
# command of the master, is tried.
PLANTED = {
    "nobody is allowed": (
        *("master", f"mv {CA}/hypervisors.json /srv/", f"mv /srv/hypervisors.json {CA}/"),
        *("hypervisors", "master", True),
    ),
    "an allowed id without a key": (
        *option("virt: {timeout_s: 20, hypervisors: [hyper70]}"),
        *("keys", "hyper70", False),
    ),
    "a configuration that the master has not read": (
        "master",
        f"echo '# newer' >{PLANTED_CONF.format('master')}",
        f"rm {PLANTED_CONF.format('master')}",
        *("restart", "master", False),
    ),
    "modules that are not served": (
        *("master", "mv /etc/salt/master.d/virt.conf /srv/virt.conf"),
        *("mv -n /srv/virt.conf /etc/salt/master.d/", "modules-served", "master", False),
    ),
    "no addresses of hosts": (
        *option("minion_data_cache: False"),
        *("minion-data-cache", "master", False),
    ),
    "no pillar": (*option("on_demand_ext_pillar: [virtkey]"), "pillar", "master", False),
    "a silent host": (
        *("hyper3", "systemctl stop salt-minion", "systemctl start salt-minion"),
        *("silent", "hyper3", False),
    ),
    "a host that was never synced": (*moved("hyper2", EXTMODS), "modules", "hyper2", True),
    "no binding": (
        "hyper1",
        # Both of its files, as when it is not installed.
        f'for m in libvirt libvirtmod; do {ONEDIR} -c "import $m; print($m.__file__)"; done '
        f">/srv/where; for p in $(cat /srv/where); do mv $p /srv; done; {RESTART}",
        f"for p in $(cat /srv/where); do mv /srv/$(basename $p) $p; done; rm /srv/where; {RESTART}",
        *("packages", "hyper1", False),
    ),
    "old code": (
        "hyper3",
        f"cp -a {CODE} /srv/units.py; echo '# older' >>{CODE}",
        f"mv /srv/units.py {CODE}",
        *("code", "hyper3", True),
    ),
    "another hash": (*of_host("hyper1", "hash_type: md5"), "hash-type", "hyper1", False),
    "an option": (*of_host("hyper1", "virt: {images: 5}"), "options", "hyper1", False),
    # Stopped, it is started again by whoever tries its TLS port.
    "no libvirt": (
        *of_host("hyper2", 'virt: {connection: {uri: "qemu+unix:///system?socket=/nowhere"}}'),
        *("libvirt", "hyper2", False),
    ),
    "no qemu-img": (*moved("hyper1", "/usr/bin/qemu-img"), "qemu-img", "hyper1", False),
    "a folder that QEMU cannot enter": (
        "hyper1",
        "mkdir -m 700 /srv/planted; "
        f"echo 'virt: {{images: /srv/planted/vm}}' >{PLANTED_CONF.format('minion')}; {RESTART}",
        f"rm -r /srv/planted {PLANTED_CONF.format('minion')}; {RESTART}",
        *("image-folder", "hyper1", True),
    ),
    "no pool": (*of_host("hyper2", "virt: {storagepool: fast}"), "pool", "hyper2", False),
    "a profile of NICs": (
        *of_host("hyper1", "virt: {nic: {default: {eth0: {type: wire}}}}"),
        *("profiles", "hyper1", False),
    ),
    "no bridge": (
        *of_host("hyper3", "virt: {nic: {default: {eth0: {bridge: br9}}}}"),
        *("bridge", "hyper3", False),
    ),
    "no room": (
        *of_host("hyper2", "virt: {capacity: {memory_mib: 400}}"),
        *("room", "hyper2", False),
    ),
    "a master that guests cannot reach": (
        *of_host("hyper1", "virt: {seed: {master: 127.0.0.1}}"),
        *("guest-master", "hyper1", False),
    ),
    "a master that does not answer": (
        *of_host("hyper1", "virt: {seed: {master: 192.0.2.1}}"),
        *("guest-master", "hyper1", False),
    ),
    "no users of appliances": (
        "hyper2",
        "for n in '' 2 3 4; do userdel salt-virt$n; done",
        "for n in '' 2 3 4; do id salt-virt$n 2>/dev/null || "
        "useradd --system --user-group --shell /usr/sbin/nologin salt-virt$n; done",
        *("appliance-users", "hyper2", True),
    ),
    "no certificate": (
        *moved("hyper1", "/etc/pki/libvirt/clientcert.pem"),
        *("certificates", "hyper1", False),
    ),
    "nothing listens": (
        "hyper3",
        "systemctl stop libvirtd.service libvirtd-tls.socket",
        f"systemctl stop libvirtd.service {SOCKETS}; systemctl start libvirtd-tls.socket {SOCKETS}",
        *("tls", "hyper3", False),
    ),
    "a closed firewall": (
        *("hyper2", DROP, "nft delete table inet planted"),
        *("firewall", "hyper2", False),
    ),
    "a misspelt option": (
        *option("virt: {timeout_s: 20, placment: pack}"),
        *("misspelt", "master", False),
    ),
    "maintenance": (
        *("hyper3", "salt-call virt.maintenance on", "salt-call virt.maintenance off"),
        *("maintenance", "hyper3", True),
    ),
}


def found(done):
    """Return ``{(check, where): finding}`` of what a check printed."""
    assert done.traceback == []
    findings = done.data["findings"]
    assert all(one["what"] and one["fix"] for one in findings)
    assert done.code == (1 if any(one["level"] == "needed" for one in findings) else 0)
    return {(one["check"], one["where"]): one for one in findings}


@pytest.fixture(scope="module")
def usual(cloud):
    """What a lab lacks that VMs do not need: KVM, packages of minions, maybe libguestfs."""
    return set(found(cloud.run("virt.setup_check")))


@pytest.mark.both_salts
def test_nothing_that_vms_need_is_missing_on_a_lab(cloud):
    cloud.purge_all()

    done = cloud.run("virt.setup_check")

    assert done.code == 0, done.out + done.err
    checks = {one["check"] for one in found(done).values()}
    # The lab's hosts seed with nocloud, and look into no image.
    assert checks <= {"kvm", "libguestfs", "minion-packages", "seed-method"}
    assert (done.data["checked"], done.data["ready"]) == (cloud.hosts, READY)
    shown = cloud.command("salt-run", "virt.setup_check")
    assert shown.out.strip().endswith(READY)


@pytest.fixture
def planted(cloud, usual, request):
    """A lab with one gap."""
    node, plant, undo, *_what = PLANTED[request.param]
    cloud.sh(node, plant)
    if RESTART in plant:
        cloud.ready([node])
    yield PLANTED[request.param]
    cloud.sh(node, undo)
    if "salt-minion" in undo:
        cloud.ready([node])


def _cases():
    """Yield all that is planted; what has a minion start again takes its time, at night."""
    for name, row in PLANTED.items():
        is_slow = RESTART in row[1] or "salt-minion" in row[1]
        yield pytest.param(name, marks=pytest.mark.nightly if is_slow else ())


@pytest.mark.parametrize("planted", list(_cases()), indirect=True)
def test_what_is_planted_is_found_alone_and_mended_by_its_line(cloud, usual, planted):
    *_how, check, where, is_tried = planted

    there = found(cloud.run("virt.setup_check"))

    # Of a host that cannot be looked at, what it usually lacks is not known either.
    assert set(there) - usual == {(check, where)}
    if is_tried:
        cloud.sh("master", there[check, where]["fix"])
        assert set(found(cloud.run("virt.setup_check"))) - usual == set()


def test_a_host_that_nobody_has_allowed_is_named_with_the_command(cloud):
    cloud.sh("master", "salt-run virt.disallow hyper3 force=True")
    try:
        there = found(cloud.run("virt.setup_check", "hyper3"))
    finally:
        cloud.sh("master", "salt-run virt.allow hyper3; salt-run virt_pki.renew hyper3")

    assert there["hypervisors", "hyper3"]["fix"] == "salt-run virt.allow hyper3"
