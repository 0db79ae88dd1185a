"""Placement is a pure function of the hosts' answers; the test fleets are JSON files."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import told
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.core.errors import NoHostFits
from saltvirt.core.model import Requirements
from saltvirt.placement import choose, cures, fit

FLEETS = Path(__file__).resolve().parents[2] / "data" / "fleets"
NEED = Requirements(
    name="new",
    vcpus=2,
    memory_mib=1024,
    disk_mib=8192,
    nic_profile="default",
    disk_profile="default",
)


def fleet(name="three"):
    """Return a fleet by the name of its file."""
    return json.loads((FLEETS / f"{name}.json").read_text())


def reasons_against(required, hosts=None, host="hyper1"):
    """Return the reasons against one host, as one text."""
    evaluations = {v.host: v for v in choose.evaluate(told.infos(hosts or fleet()), required)}
    return "; ".join(evaluations[host].reasons)


def test_the_emptiest_host_comes_first_and_equal_ones_by_name():
    hosts = fleet()

    order = [v.host for v in choose.evaluate(told.infos(hosts), NEED)]

    assert order == ["hyper2", "hyper3", "hyper1"]
    assert order == [
        v.host for v in choose.evaluate(told.infos(dict(reversed(hosts.items()))), NEED)
    ]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"vcpus": 9}, "9 CPUs wanted, 4 of 8 free"),
        ({"memory_mib": 9999}, "9999 MiB of memory wanted, 2048 MiB free"),
        ({"disk_mib": 10**9}, "MiB of disk wanted, 50000 MiB free"),
        ({"bridges": ("br7",)}, "no bridge br7 there"),
        ({"networks": ("off",)}, "no active network off there (on it: virsh net-start off)"),
        ({"networks": ("lan7",)}, "no active network lan7 there"),
        ({"links": ("eno7",)}, "no link eno7 there"),
        ({"bridge_vlans": True}, "cannot tag VLANs on a Linux bridge (11.0 can)"),
        ({"stocks": (("NUMA node 7", 0),)}, "no NUMA node 7 there"),
        (
            {"stocks": (("hugepages of 2048 KiB", 900),)},
            "900 MiB of hugepages of 2048 KiB wanted, 300 MiB free",
        ),
        ({"nic_profile": "dmz"}, "no nic profile 'dmz' there"),
        ({"disk_profile": "huge"}, "no disk profile 'huge' there"),
        ({"nic_profile": "broken"}, "interface 'eth0'"),
        ({"domain_type": "kvm"}, "no kvm guests there (qemu): libvirt offers no KVM guests"),
        ({"arch": "s390x"}, "no s390x guests there (i686, x86_64)"),
        ({"cpu_features": ("avx", "sgx")}, "its CPU lacks sgx for qemu guests"),
        ({"anti_affinity": ("db",)}, "db1 of the anti-affinity group db is there"),
        ({"name": "db1"}, "it already has a VM called db1"),
        ({"name": "coming"}, "a VM called coming is being built there"),
    ],
)
def test_every_filter_gives_its_reason(changes, reason):
    hosts = fleet()
    pages = {"limit_mib": 1000, "committed_mib": 700}
    hosts["hyper1"]["stocks"] = {"hugepages of 2048 KiB": pages}

    reasons = reasons_against(replace(NEED, **changes), hosts)
    assert reason in reasons
    # A reason that names its own remedy needs no cure.
    assert len(cures.find_cures([reasons])) == 1 or reason[:9] in ("cannot ta", "interface")


def test_an_older_host_without_stocks_is_not_refused_for_them():
    assert reasons_against(replace(NEED, stocks=(("storage pool ssd", 10),))) == ""


def test_the_features_of_the_kind_of_guest_count():
    hosts = fleet()
    hosts["hyper1"]["domain_types"] = {"default": "kvm", "usable": ["kvm", "qemu"], "why": "it ran"}
    hosts["hyper1"]["cpu"]["features"] = {"kvm": ["sgx"], "qemu": ["avx"]}
    required = replace(NEED, cpu_features=("avx",))

    assert reasons_against(required, hosts) == "its CPU lacks avx for kvm guests"
    assert reasons_against(replace(required, domain_type="qemu"), hosts) == ""


def test_a_host_without_proof_of_kvm_is_named_and_takes_an_explicit_domain_type():
    hosts = fleet()
    hosts["hyper1"]["domain_types"] = {"default": None, "usable": ["qemu"], "why": "KVM is open"}

    assert reasons_against(NEED, hosts) == "it cannot say which guests run there: KVM is open"
    assert reasons_against(replace(NEED, domain_type="qemu"), hosts) == ""
    assert reasons_against(replace(NEED, domain_type="kvm"), hosts).endswith("(qemu): KVM is open")


def test_a_host_in_maintenance_is_never_chosen():
    hosts = fleet()
    for info in hosts.values():
        info["maintenance"] = True

    with pytest.raises(NoHostFits, match="hyper1: in maintenance; hyper2: in maintenance"):
        choose.choose(told.infos(hosts), NEED)


def test_the_networks_of_the_hosts_own_profile_count():
    hosts = fleet()
    hosts["hyper1"]["bridges"] = []

    assert reasons_against(NEED, hosts) == "no bridge br0 there"


def test_affinity_keeps_a_group_together_where_it_is():
    required = replace(NEED, affinity=("web",))

    assert [v.host for v in choose.evaluate(told.infos(fleet()), required) if v.fits] == ["hyper3"]


def test_stopped_vms_keep_their_room():
    assert fit.free(told.infos(fleet())["hyper1"])["memory_mib"] == 2048


@given(st.integers(1, 20), st.integers(1, 20000), st.integers(0, 10**6))
def test_no_host_that_is_chosen_is_overcommitted(vcpus, memory_mib, disk_mib):
    required = replace(NEED, vcpus=vcpus, memory_mib=memory_mib, disk_mib=disk_mib)

    for evaluation in choose.evaluate(told.infos(fleet()), required):
        room = fit.free(told.infos(fleet())[evaluation.host])
        fits = (
            room["vcpus"] >= vcpus
            and room["memory_mib"] >= memory_mib
            and room["disk_mib"] >= max(disk_mib, 8192)
        )
        assert evaluation.fits == fits


def test_a_failed_choice_carries_every_reason():
    with pytest.raises(NoHostFits) as excinfo:
        choose.choose(told.infos(fleet()), replace(NEED, memory_mib=10**6))

    assert sorted(excinfo.value.reasons) == ["hyper1", "hyper2", "hyper3"]
    assert "no host fits 'new' (2 CPUs, 1000000 MiB)" in str(excinfo.value)


def test_the_message_names_some_of_many_hosts_and_the_error_has_all():
    hosts = {f"h{n:04}": fleet()["hyper1"] for n in range(1000)}
    with pytest.raises(NoHostFits) as excinfo:
        choose.choose(told.infos(hosts), replace(NEED, memory_mib=10**6))

    line = str(excinfo.value)
    assert "h0009: " in line and " and 990 more; what helps: " in line and "h0010" not in line
    assert len(excinfo.value.reasons) == 1000


def test_a_host_with_the_room_in_its_trash_names_the_cure():
    hosts = fleet()
    hosts["hyper1"]["storage"]["trash_mib"] = 700

    reason = reasons_against(replace(NEED, disk_mib=10**9), hosts)

    assert reason.endswith("MiB of disk wanted, 50000 MiB free; 700 MiB are in its trash")
    assert "salt-run virt.trash_empty HOST" in cures.format_cures([reason])
    assert "trash" not in reasons_against(replace(NEED, disk_mib=10**9))


def test_a_failed_choice_ends_with_each_cure_once():
    hosts = fleet()
    hosts["hyper2"]["maintenance"] = True

    with pytest.raises(NoHostFits) as excinfo:
        choose.choose(told.infos(hosts), replace(NEED, memory_mib=10**6))

    line = str(excinfo.value)
    reasons_text, _, cures_text = line.partition("; what helps: ")
    assert cures_text == (
        "less memory, or more to hand out: virt:memory_ratio, virt:capacity; "
        "salt-run virt.maintenance HOST off, or virt.restore HOST"
    )
    # A host that refuses reports the same reasons, so each is shown once.
    assert cures.strip_cures(line) == reasons_text


REASONS = {
    "an argument of init alone": "no nic profile 'lan' there",
    "the size": "9 CPUs wanted, 4 of 8 free",
    "the host": "in maintenance",
    "the machine type": "its machine type pc-q35-10.0 is newer than QEMU 7.2 there knows",
    "the CPU": "its CPU lacks avx for kvm guests",
    "headroom": "headroom: hyper2 could not be emptied",
}


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (
            cures.INIT,
            [
                "fewer CPUs, or more of them per CPU of the host: virt:cpu_ratio",
                "salt-run virt.maintenance HOST off, or virt.restore HOST",
                "a CPU model that all hosts have: cpu={model: …}",
                "machine= of the oldest host, as salt-run virt.host_info fields=machines shows "
                "them",
                "name a profile that the host has in virt:nic, or nic=nat",
                "headroom=False, or more hosts",
            ],
        ),
        (
            cures.MIGRATE,
            [
                "fewer CPUs of the VM, by virt.update web1 cpu=, or more of them per CPU of the "
                "host: virt:cpu_ratio",
                "salt-run virt.maintenance HOST off, or virt.restore HOST",
                "a CPU model that all hosts have, by virt.update web1 cpu={model: …} and a restart",
                "a newer QEMU there: this VM keeps the machine type that it was made with",
                "more hosts",
            ],
        ),
        (
            cures.CLONE,
            [
                "more of them per CPU of the host: virt:cpu_ratio",
                "salt-run virt.maintenance HOST off, or virt.restore HOST",
                "more hosts",
            ],
        ),
    ],
)
def test_the_cures_fit_the_command(command, expected):
    texts = cures.find_cures(REASONS.values(), command, "web1")

    assert texts == expected


def test_a_name_with_shell_syntax_is_quoted_in_a_cure():
    (text,) = cures.find_cures(["it already has a VM called x"], name="a; b")

    assert text.endswith("salt-run virt.purge 'a; b'")


@pytest.mark.parametrize("kind", ["vms", "coming"])
def test_groups_count_present_and_coming_vms(kind):
    hosts = fleet()
    for info in hosts.values():
        info.update(vms={}, coming={})
    hosts["hyper2"][kind]["w1"] = {"affinity": ["shop"], "anti_affinity": ["tower"]}

    evaluations = choose.evaluate(told.infos(hosts), replace(NEED, affinity=("shop",)))
    anti_evaluations = choose.evaluate(told.infos(hosts), replace(NEED, anti_affinity=("tower",)))

    assert [v.host for v in evaluations if v.fits] == ["hyper2"]
    assert evaluations[-1].reasons == ("the affinity group shop is on hyper2",)
    assert "hyper2" not in [v.host for v in anti_evaluations if v.fits]
    expected = "is there" if kind == "vms" else "is being built there or on its way"
    assert anti_evaluations[-1].reasons == (f"w1 of the anti-affinity group tower {expected}",)


def test_a_vm_on_its_way_counts_where_it_goes():
    hosts = fleet()
    vm = {"affinity": ["shop"], "anti_affinity": []}
    hosts["hyper1"]["vms"]["w1"] = vm
    hosts["hyper2"]["coming"] = {"w1": vm}

    evaluations = choose.evaluate(told.infos(hosts), replace(NEED, affinity=("shop",)))

    assert [v.host for v in evaluations if v.fits] == ["hyper2"]


def test_every_affinity_group_of_a_vm_must_be_where_it_goes():
    hosts = fleet()
    hosts["hyper1"]["vms"]["w1"] = {"affinity": ["shop"], "anti_affinity": []}
    hosts["hyper2"]["vms"]["w2"] = {"affinity": ["till"], "anti_affinity": []}
    required = replace(NEED, affinity=("shop", "till"))

    assert "the affinity group till is on hyper2" in reasons_against(required, hosts)
    assert "the affinity group shop is on hyper1" in reasons_against(required, hosts, "hyper2")


def test_a_host_of_an_older_release_names_what_it_builds_and_no_more():
    hosts = fleet()
    assert all("coming" not in info for info in hosts.values())

    assert "is being built there" in reasons_against(replace(NEED, name="coming"), hosts)


@pytest.mark.parametrize("group", ["affinity", "anti_affinity"])
def test_a_kept_definition_is_not_in_a_group(group):
    hosts = fleet()
    vm = {"vcpus": 1, "affinity": [], "anti_affinity": [], group: ["shop"]}
    hosts["hyper2"]["vms"]["w1"] = vm
    hosts["hyper1"]["kept"] = {"w1": "hyper2"}
    required = replace(NEED, **{group: ("shop",)})

    fits = {v.host: v.fits for v in choose.evaluate(told.infos(hosts), required)}

    assert fits["hyper2"] is (group == "affinity") and fits["hyper1"] is not fits["hyper2"]


def test_the_name_of_a_kept_definition_is_taken_on_its_host():
    hosts = fleet()
    hosts["hyper1"]["kept"] = {NEED.name: "hyper2"}

    assert reasons_against(NEED, hosts) == "it kept the definition of a VM called new"
