"""What root of a guest tries against the master, the hosts and other VMs: all of it in vain."""

import json
import subprocess

import faultkit as kit
import guestkit
import pytest
from cloudkit import TINY, port, wait
from guestkit import HOST, MARK, NAME, VICTIM
from labkit import node
from saltvirt.ca import answer

POINT = "build.before-defining"
KEY = r"^-----BEGIN ([A-Z]+ )?PRIVATE KEY-----\s*$"


@pytest.fixture(scope="module")
def guest(cloud):
    """A guest on hyper1's bridge, whose key is accepted and whose root tries things."""
    cloud.purge_all()
    with guestkit.guest(cloud) as it:
        guestkit.is_heard(cloud, it)
        yield it
    cloud.purge_all()


# Keys and certificates.


def submitted(guest, **given):
    """Have the guest submit its key as that of another VM; return what the master says."""
    public = guest.command("cat", f"{guestkit.FOLDER}/etc/salt/pki/minion/minion.pub").out
    question = {"virtkey": {"key": public, **given}}
    return guest.local("pillar.ext", json.dumps(question)).get("virtkey") or {}


def test_a_guest_submits_no_key(cloud, guest):
    before = cloud.accepted()
    assert cloud.run("virt.authorize", "stolen1", HOST).code == 0
    # As if it had got out: it is good for the host that it was given to.
    token = cloud.sh(HOST, "cat /var/lib/salt-virt/tokens/stolen1")
    try:
        for given in (
            {"name": "stolen1"},
            {"name": "stolen1", "token": MARK},
            {"name": "stolen1", "token": token},
            {"name": "nobody1", "token": token},
            {"name": VICTIM, "token": token},
            {"name": NAME, "token": token},
        ):
            said = submitted(guest, **given)
            assert "error" in said and given["name"] not in said, (given, said)
        assert cloud.accepted() == before

        cloud.local(HOST, "seed.mkconfig", "tmp=/srv/seed", "id_=stolen1")

        assert sorted({*cloud.accepted()} - {*before}) == ["stolen1"], "its owner can still use it"
    finally:
        cloud.sh(HOST, "rm -rf /srv/seed /var/lib/salt-virt/tokens/stolen1")
        (cloud.master_conf / "pki/master/minions/stolen1").unlink(missing_ok=True)


def test_a_guest_gets_no_certificate_by_hand(cloud, guest):
    before = cloud.run("virt_pki.list").data
    question = {"libvirt": {"certificates": {}, "version": answer.VERSION}}

    said = guest.local("pillar.ext", json.dumps(question))["libvirt_pki"]

    # Salt 3008 shows stars for what a pillar says here.
    assert list(said) == ["error"] and said["error"] != ""
    load = {"cmd": "_pillar", "grains": {}, "saltenv": "base", "pillarenv": None, "ver": "2"}
    asked = {**load, "ext": question, "id": VICTIM}
    came = guest.raw(("aes", asked), ("clear", asked))
    assert "libvirt_pki" not in came and "CERTIFICATE" not in came
    assert cloud.run("virt_pki.list").data == before


# Answers, progress and starts in another's name.


def begun(cloud, *words):
    """Start a salt-run whose user reads all that it shows."""
    argv = node.enter(node.pid_of(cloud.lab, "master"), ["salt-run", *words])
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def under_way(cloud):
    """Return the ids of the orders that the host says it is at."""
    running = cloud.local(VICTIM, "saltutil.running")
    return {one["jid"] for one in running if one["fun"] == "virt.signed"}


@pytest.fixture
def building(cloud):
    """The build of a VM v1 on hyper2, which waits half-way until it is released, and its job."""
    words = ("v1", "1", "96", TINY, f"host={VICTIM}", "wait=False", "seed=False")
    with kit.told(cloud, [VICTIM]):
        kit.tell(cloud, VICTIM, POINT, "wait")
        # One that a power cut has ended seems to run where another of Salt's processes has its pid.
        over = under_way(cloud)
        job = begun(cloud, "virt.init", *words)
        try:
            kit.reached(cloud, VICTIM, POINT, job)
            # The runner asks now and then, by jobs of their own, whether the first is still at it.
            yield job, min(under_way(cloud) - over)
        finally:
            kit.release(cloud, VICTIM)
            if job.poll() is None:
                job.communicate(timeout=300)
    assert cloud.run("virt.purge", "v1").code == 0


def answers(guest, jid):
    """Yield what the guest says in the name of the host to a job that is running."""
    for said in (
        MARK,
        {"error": MARK},
        guest.signs(VICTIM, jid, fun="virt.init", value=MARK),
        guest.signs(VICTIM, jid, fun="virt.init", why=MARK, retcode=1),
        guest.signs(NAME, jid, fun="virt.init", why=MARK, retcode=1),
    ):
        yield {
            "cmd": "_return",
            "id": VICTIM,
            "jid": jid,
            "fun": "virt.signed",
            "fun_args": [],
            "return": said,
            "retcode": 0,
            "success": True,
        }


@pytest.mark.nightly
def test_a_build_hears_nobody_but_its_host(cloud, guest, building):
    job, jid = building
    for load in answers(guest, jid):
        guest.fires(f"salt/job/{jid}/ret/{VICTIM}", load)
        guest.raw(("aes", load), ("aes", {**load, "id": NAME}), ("clear", load))
    stage = {"name": "v1", "stage": MARK, "detail": MARK}
    for data in (stage, guest.signs(VICTIM, "salt/virt/init", value=stage)):
        guest.fires("salt/virt/init", data)
        guest.fires("salt/virt/init", {"id": VICTIM, "data": data})
    assert job.poll() is None, job.communicate()
    assert "v1" not in cloud.sh(VICTIM, "virsh -q list --all --name").split()

    kit.release(cloud, VICTIM)
    out, _err = job.communicate(timeout=300)

    assert job.returncode == 0, out
    assert MARK not in out and "v1" in out
    assert cloud.sh(VICTIM, "virsh -q domstate v1").strip() == "running"
    # A guest may answer any job, by its own name.
    kept = cloud.run("jobs.lookup_jid", jid, "display_progress=False").data
    assert MARK not in json.dumps(kept[VICTIM]), "nor is it what the job cache has of that host"


@pytest.fixture
def impatient(cloud):
    """A master that waits 45 s for the minion of a new VM."""
    path = cloud.master_conf / "master.d/zz-wait.conf"
    path.write_text(json.dumps({"virt": {"timeout_s": 20, "wait_s": 45}}))
    yield
    path.unlink()
    assert cloud.run("virt.purge", "v2").code == 0


def returns(jids):
    """Yield what the guest sends as if it were a syndic, or had a resource of that name."""
    said = {"return": True, "retcode": 0, "success": True, "fun": "test.ping", "fun_args": []}
    for jid in jids:
        load = {"id": NAME, "jid": jid, "fun": "test.ping", "return": {"v2": said}}
        yield "aes", {**load, "cmd": "_syndic_return"}
        yield "aes", {**said, "cmd": "_return", "id": NAME, "jid": jid, "resource_id": "v2"}


@pytest.mark.nightly
def test_a_start_that_another_says_is_no_start(cloud, guest, impatient):
    """The tiny guest has no minion: only somebody else could say that it has started."""
    job = begun(cloud, "virt.init", "v2", "1", "96", TINY, f"host={VICTIM}")
    tries, forged = 0, set()
    while job.poll() is None:
        guest.fires("salt/minion/v2/start", {"id": "v2", "cmd": "_minion_event", "data": MARK})
        pings = cloud.run("jobs.list_jobs", "search_target=v2", "search_function=test.ping").data
        guest.raw(*returns(pings))
        tries += 1
        forged |= pings.keys()
    out, _err = job.communicate()

    assert tries > 1 and job.returncode == 1, out
    # The master has stored some of them: Salt does not ask who a syndic is.
    kept = [cloud.run("jobs.lookup_jid", jid, "display_progress=False").data for jid in forged]
    assert {"v2": True} in kept
    said = "runs on hyper2 and keeps its key, but its minion does not answer after 45 s"
    assert said in " ".join(out.split())
    assert MARK not in out


# The hosts' ports, from the guests' network.


@pytest.fixture
def listening(cloud):
    """Every host listens for a move on the first and the last of QEMU's ports."""
    ports = (49152, 49215)
    for host in cloud.hosts:
        for one in ports:
            server = f"python3 -m http.server {one}"
            cloud.sh(host, f"systemd-run -q --unit=lab-listens-{one} --collect {server}")
    yield ports
    for host in cloud.hosts:
        units = " ".join(f"lab-listens-{one}" for one in ports)
        cloud.sh(host, f"systemctl stop {units} 2>/dev/null || true")


def test_no_port_of_a_host_is_open_to_a_guest(cloud, guest, listening):
    for host in cloud.hosts:
        address = cloud.lab.host_ip(host)
        peer = next(one for one in cloud.hosts if one != host)
        for one in (16514, *listening):
            wait(f"{one} of {host}", lambda: port(cloud, peer, address, one) == "open", 60)  # noqa: B023
            assert guest.connects(address, one) != "open", (host, one)


def test_no_display_is_open_to_a_guest(cloud, guest):
    made = cloud.local(HOST, "virt.init", "v3", "1", "96", TINY, "seed=False", "enable_vnc=True")
    try:
        assert made is True
        shown = cloud.sh(HOST, "virsh -q vncdisplay v3").strip()
        listen, _colon, number = shown.rpartition(":")
        at = 5900 + int(number)
        assert listen in ("127.0.0.1", "localhost"), shown
        assert port(cloud, HOST, "127.0.0.1", at) == "open"

        assert guest.connects(cloud.lab.host_ip(HOST), at) != "open"
    finally:
        assert cloud.run("virt.purge", "v3").code == 0


# The file server.


def test_no_secret_is_on_the_file_server(cloud, guest):
    listed = set(guest.local("cp.list_master"))
    assert {"hypervisor/init.sls", "images/tiny.qcow2"} <= listed
    assert [one for one in listed if one.endswith((".pem", ".key", ".p12", ".backup"))] == []

    pillar = cloud.folder("master") / "srv/pillar"
    names = {str(one.relative_to(pillar)) for one in pillar.rglob("*") if one.is_file()}
    assert names and names.isdisjoint(listed)
    # The images are not all of this project, and none of them is given to guests as a secret.
    places = "/srv/salt /srv/salt-virt"
    found = cloud.sh("master", f"grep -rlE --exclude-dir=images -- '{KEY}' {places} || true")
    assert found == ""


OUTSIDE = (
    "../pillar/top.sls",
    "images/../../pillar/top.sls",
    "/srv/pillar/top.sls",
    "../../etc/salt/pki/master/master.pem",
    "../../etc/salt/pki/master/libvirt/cakey.pem",
    "../../etc/salt/pki/master/salt-virt/evacuations.json",
)


def test_nothing_beside_the_file_server_is_read_through_it(guest):
    load = {"cmd": "_serve_file", "saltenv": "base", "loc": 0, "id": NAME}
    assert "hypervisor." in guest.raw(("aes", {**load, "path": "hypervisor/init.sls"}))

    came = guest.raw(*(("aes", {**load, "path": path}) for path in OUTSIDE))
    came += guest.call("cp.get_file_str", f"salt://{OUTSIDE[0]}").out

    assert came.count("SAID") + came.count("FAILED") == len(OUTSIDE), came
    for secret in ("PRIVATE KEY", '"keys"', "hyper1"):
        assert secret not in came, came
