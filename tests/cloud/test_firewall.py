"""Who may reach a host is the same after a reboot, whichever firewall keeps it."""

import json

import pytest
from cloudkit import port

pytestmark = pytest.mark.second
HOST, PEER = "hyper1", "hyper2"
NAME, PORT = "lab_rules", 7901  # beside the rules that the formula has made
SHOWN = {"nftables": "nft list tables", "iptables": "iptables -S; ip6tables -S"}
FOREIGN = {
    "nftables": (
        "nft add table inet foreign",
        "nft delete table inet foreign",
        "table inet foreign",
    ),
    "iptables": (
        "iptables -A INPUT -p tcp --dport 9 -j DROP",
        "iptables -D INPUT -p tcp --dport 9 -j DROP",
        "--dport 9 -j DROP",
    ),
}
ADMINS = 'rule family="ipv4" source address="10.99.0.5" port port="16514" protocol="tcp" accept'
OURS = {"nftables": f"table inet {NAME}", "iptables": "-A INPUT -j LAB-RULES"}
FILES = (
    f"ls -d /etc/salt-virt/*{NAME}* /etc/systemd/system/*{NAME}* "
    f"/etc/systemd/system/*.wants/*{NAME}* 2>/dev/null || true"
)


def state(cloud, host, function, name, *words):
    """Apply one state by the host's own salt-call; return its outcome, also of one that failed."""
    done = cloud.call(host, "state.single", f"virt.{function}", name, *words)
    assert not done.traceback, done.traceback
    (outcome,) = done.data["local"].values()
    return outcome


def listening(cloud, host):
    """Have the host listen on the port until it is told to stop or boots."""
    cloud.sh(host, f"systemd-run -q --unit=lab-listens --collect python3 -m http.server {PORT}")


@pytest.mark.parametrize(
    "backend", ["nftables", pytest.param("iptables", marks=pytest.mark.nightly)]
)
def test_the_rules_are_there_again_after_a_reboot_before_the_network_is(cloud, backend):
    unit, words = f"salt-virt-{backend}-{NAME}", (f"ports=[{PORT}]", f"backend={backend}")
    address = cloud.local(HOST, "network.ip_addrs", "br0")[0]
    make, unmake, foreign = FOREIGN[backend]
    cloud.sh(HOST, make)

    tried = state(cloud, HOST, "firewall_present", NAME, *words, "test=True")
    assert tried["result"] is None and cloud.sh(HOST, FILES) == ""
    done = state(cloud, HOST, "firewall_present", NAME, *words)
    assert done["result"] is True, done["comment"]
    assert done["changes"].keys() == tried["changes"].keys()
    assert foreign in cloud.sh(HOST, SHOWN[backend])
    cloud.sh(HOST, unmake)

    cloud.reboot(HOST)
    try:
        assert OURS[backend] in cloud.sh(HOST, SHOWN[backend])
        assert state(cloud, HOST, "firewall_present", NAME, *words)["changes"] == {}
        times = {
            name: int(
                cloud.sh(HOST, "systemctl show --value -p ActiveEnterTimestampMonotonic " f"{name}")
            )
            for name in (f"{unit}.service", "network.target")
        }
        assert 0 < times[f"{unit}.service"] <= times["network.target"]
        assert cloud.sh(HOST, "systemctl --failed --plain --no-legend") == ""
        listening(cloud, HOST)
        cloud.sh(HOST, f"sleep 1; ss -Hltn sport = :{PORT} | grep -q .")
        ends = [port(cloud, source, address, PORT) for source in (PEER, "master")]
        assert ends == ["open", "refused"]
        cloud.sh(HOST, make)
    finally:
        gone = state(cloud, HOST, "firewall_absent", NAME, f"backend={backend}")
        shown = cloud.sh(HOST, SHOWN[backend])
        cloud.sh(HOST, f"{unmake} || true; systemctl stop lab-listens 2>/dev/null || true")
    assert gone["result"] is True, gone["comment"]
    assert foreign in shown and OURS[backend] not in shown
    assert cloud.sh(HOST, FILES) == ""
    assert unit not in cloud.sh(HOST, "systemctl list-unit-files --no-legend")
    again = state(cloud, HOST, "firewall_absent", NAME, f"backend={backend}")
    assert (again["result"], again["changes"]) == (True, {})


# firewalld; nftables
@pytest.mark.parametrize("host", ["hyper2", pytest.param("hyper3", marks=pytest.mark.nightly)])
def test_a_host_whose_address_the_master_does_not_know_is_not_shut_out(cloud, host):
    address, change = cloud.lab.host_ip(host), ("state.apply", "hypervisor.firewall")
    # Where Salt 3008 has them, and where 3006 has.
    known = "grains/hyper1.p minions/hyper1/data.p"
    cloud.sh("master", f"cd /var/cache/salt/master; rm $(ls {known} 2>/dev/null)")
    try:
        (outcome,) = (
            one
            for one in cloud.salt(host, *change).data[host].values()
            if one["__id__"] == "hypervisor_firewall"
        )
        reached = port(cloud, "hyper1", address, 16514)
    finally:
        cloud.sh("master", "salt hyper1 saltutil.refresh_grains; salt hyper1 pillar.items -t 30")

    stays = f"; {cloud.lab.host_ip('hyper1')} may still get in, as the master knows no address of "
    assert outcome["comment"].endswith(f"{stays}hyper1, until: salt HOST saltutil.refresh_grains")
    assert (outcome["result"], outcome["changes"], reached) == (True, {}, "open")
    again = cloud.salt(host, *change).data[host].values()
    assert all("no address" not in one["comment"] for one in again)


def test_a_unit_that_does_not_start_leaves_nothing(cloud):
    folder = f"/etc/systemd/system/salt-virt-nftables-{NAME}.service.d"
    cloud.sh(
        HOST,
        f"mkdir {folder}; printf '[Service]\\nExecStart=\\nExecStart=/bin/false\\n' "
        f"> {folder}/broken.conf",
    )
    try:
        done = state(cloud, HOST, "firewall_present", NAME, f"ports=[{PORT}]")
    finally:
        cloud.sh(HOST, f"rm -r {folder}; systemctl daemon-reload")

    assert done["result"] is False and "\n" not in done["comment"]
    assert done["comment"].startswith("systemctl start salt-virt-nftables-")
    assert cloud.sh(HOST, FILES) == ""
    assert NAME not in cloud.sh(HOST, "nft list tables; systemctl --failed --plain --no-legend")


@pytest.mark.nightly
@pytest.mark.parametrize("before", ["start", "stop"])
@pytest.mark.parametrize("backend", ["nftables", "iptables"])
def test_a_service_that_empties_all_tables_is_followed_by_ours(cloud, backend, before):
    """Debian's nftables.service, active or not, whose configuration begins with a flush."""
    conf = "#!/usr/sbin/nft -f\\nflush ruleset\\ntable inet mine {}\\n"
    cloud.sh(
        HOST,
        "cp -p /etc/nftables.conf /etc/nftables.conf.lab; "
        f"printf '{conf}' > /etc/nftables.conf; systemctl {before} nftables",
    )
    shown = {}
    try:
        done = state(cloud, HOST, "firewall_present", NAME, f"ports=[{PORT}]", f"backend={backend}")
        assert done["result"] is True, done["comment"]
        for verbs in ("start", "reload", "restart", "stop start", "reload"):
            for verb in verbs.split():
                cloud.sh(HOST, f"systemctl {verb} nftables; sleep 2")
            shown[verbs] = cloud.sh(HOST, f"nft list tables; {SHOWN[backend]}").splitlines()
        failed = cloud.sh(HOST, "systemctl --failed --plain --no-legend")
        gone = state(cloud, HOST, "firewall_absent", NAME, f"backend={backend}")
        cloud.sh(HOST, "systemctl restart nftables; sleep 2")
        left = cloud.sh(HOST, f"nft list tables; {SHOWN[backend]}")
    finally:
        state(cloud, HOST, "firewall_absent", NAME, f"backend={backend}")
        cloud.sh(
            HOST,
            "mv /etc/nftables.conf.lab /etc/nftables.conf; systemctl stop nftables; "
            "systemctl try-restart libvirtd; "
            "systemctl restart salt-virt-nftables-salt_virt || true",
        )

    for verbs, lines in shown.items():
        assert "table inet mine" in lines, verbs
        # The iptables rules of IPv4 and of IPv6; a table is listed by each of the two commands.
        assert lines.count(OURS[backend]) == 2, verbs
    assert failed == "" and gone["result"] is True
    assert OURS[backend] not in left and cloud.sh(HOST, FILES) == ""


def test_a_table_of_somebody_else_is_refused_and_stays(cloud):
    cloud.sh(
        HOST,
        f"nft 'add table inet {NAME}; add chain inet {NAME} own; "
        f"add rule inet {NAME} own tcp dport 9 accept'",
    )
    try:
        outcomes = [
            state(cloud, HOST, "firewall_present", NAME, f"ports=[{PORT}]"),
            state(cloud, HOST, "firewall_absent", NAME),
        ]
        shown = cloud.sh(HOST, f"nft list table inet {NAME}")
    finally:
        cloud.sh(HOST, f"nft delete table inet {NAME}")

    assert [one["result"] for one in outcomes] == [False, False]
    assert {one["comment"].partition(": ")[0] for one in outcomes} == {
        f"table inet {NAME} is there and was not made by virt.firewall_present"
    }
    assert "tcp dport 9 accept" in shown and cloud.sh(HOST, FILES) == ""


def test_what_was_beside_the_rules_of_another_backend_goes_with_its_unit(cloud):
    beside, words = f"table inet {NAME}_forward", f"ports=[{PORT}]"
    try:
        for backend in ("iptables", "nftables"):
            done = state(cloud, HOST, "firewall_present", NAME, words, f"backend={backend}")
            assert done["result"] is True, done["comment"]
            tables = cloud.sh(HOST, SHOWN["nftables"]).splitlines()
            assert (beside in tables) == (backend == "iptables")
        assert "_forward" not in cloud.sh(HOST, FILES)
        assert "_forward" not in cloud.sh(HOST, "systemctl list-unit-files --no-legend")
    finally:
        for backend in ("nftables", "iptables"):
            state(cloud, HOST, "firewall_absent", NAME, f"backend={backend}")
    assert cloud.sh(HOST, FILES) == ""


@pytest.mark.nightly
def test_firewalld_is_started_keeps_the_rules_and_the_master_is_still_heard(cloud):
    pillar = {"hypervisor": {"firewall": {"backend": "firewalld", "ports": [16514]}}}
    words = ("backend=firewalld", "ports=[16514, 49152-49215]")
    # What it says to people besides, on either output, depends on which zones there are.
    listed = "firewall-cmd {} --list-rich-rules 2>/dev/null | grep ^rule || true"
    rules = f"{listed.format('')}; echo; {listed.format('--permanent')}"

    applied = cloud.salt(HOST, "state.apply", "hypervisor.firewall", f"pillar={json.dumps(pillar)}")
    try:
        assert cloud.answers(HOST)  # at once, although this side of the connection is silent
        failed = [s["comment"] for s in applied.data[HOST].values() if s["result"] is not True]
        assert failed == []
        cloud.reboot(HOST)
        now, _empty, later = cloud.sh(HOST, rules).partition("\n\n")
        assert sorted(now.split("\n")) == sorted(later.strip().split("\n"))
        assert 'port port="16514" protocol="tcp" accept' in now
        assert state(cloud, HOST, "firewall_present", "salt_virt", *words)["changes"] == {}

        cloud.sh(
            HOST,
            f"for set in '' --permanent; do firewall-cmd -q $set "
            f"--add-rich-rule='{ADMINS}'; done",
        )
        other = ("backend=firewalld", "ports=[16514, 49152-49279]")
        changed = state(cloud, HOST, "firewall_present", "salt_virt", *other)
        assert changed["result"] is True, changed["comment"]
        now = cloud.sh(HOST, rules)
        assert "49152-49279" in now and "49152-49215" not in now and now.count(ADMINS) == 2
        assert state(cloud, HOST, "firewall_present", "salt_virt", *other)["changes"] == {}

        cloud.sh(HOST, "systemctl stop firewalld")
        stopped = state(cloud, HOST, "firewall_present", "salt_virt", *words)
        assert stopped["result"] is False
        assert stopped["comment"].startswith("firewalld does not run on this host: ")
        cloud.sh(HOST, "systemctl start firewalld")
        assert state(cloud, HOST, "firewall_absent", "salt_virt", words[0])["result"] is True
        assert [line for line in cloud.sh(HOST, rules).split("\n") if line] == [ADMINS, ADMINS]
        assert cloud.sh(HOST, "ls /etc/salt-virt/firewalld-* 2>/dev/null || true") == ""
    finally:
        cloud.sh(HOST, f"firewall-cmd -q --permanent --remove-rich-rule='{ADMINS}' || true")
        cloud.sh(HOST, "systemctl disable --now firewalld")
