"""The lines of the status: about ten, and each that needs attention ends with its command."""

from pathlib import Path

import pytest
from saltvirt.entry import statusview, views

GIB = 1024
WELL = {"findings": 0, "hints": 0, "by_check": {}, "first": None, "error": None}
ROOM = {"used": 10 * GIB, "promised": 24 * GIB, "free_to_promise": 8 * GIB, "limit": 32 * GIB}
HOSTS = {
    **{"allowed": 3, "answering": 3, "silent": [], "failed": [], "maintenance": []},
    **{"shut_out": [], "without_key": []},
}
ANSWER = {
    "at": "2026-11-28T02:00:00+00:00",
    "hosts": HOSTS,
    "vms": {"total": 12, "by_state": {"running": 10, "shutdown": 2}, "coming": 0, "last_seen": 0},
    "room": {
        "cpus": {"used": 10, "promised": 24, "free_to_promise": 8, "limit": 32},
        "memory_mib": ROOM,
        "disk_mib": {**ROOM, "used": 1000 * GIB},
    },
    "checks": {"doctor": WELL, "audit": WELL, "setup_check": WELL},
    **{"certificates": [], "restart": [], "unfinished": [], "at_work": [], "keys_waiting": []},
}


def lines(**more):
    """Return the lines of an answer with other fields."""
    return statusview.lines({**ANSWER, **more})


def hosts(**more):
    """Return the lines of an answer with other hosts."""
    return lines(hosts={**HOSTS, **more})


def new_lines(all_lines):
    """Return the lines that the healthy cloud does not have."""
    return [line for line in all_lines if line not in lines()]


def test_a_healthy_cloud_takes_ten_lines_without_a_command():
    assert lines() == [
        "hosts: all 3 answer",
        "VMs: 12: 10 running, 2 shutdown",
        "CPUs: 10 used, 24 promised, 8 free to promise",
        "memory: 10.0 GiB used, 24.0 promised, 8.0 free to promise",
        "disk: 1,000.0 GiB used, 24.0 promised, 8.0 free to promise",
        "doctor: nothing is left over",
        "audit: nothing falls short",
        "setup_check: nothing that VMs need is missing",
        "certificates: none ends soon",
        "open: nothing is unfinished; no VM waits for a restart, and no key to be accepted",
    ]
    assert views.find("virt.status", ANSWER, {}) == {"said": lines()}


@pytest.mark.parametrize(
    ("all_lines", "expected"),
    [
        (hosts(allowed=0, answering=0), ["hosts: none is allowed yet: salt-run virt.allow"]),
        (
            hosts(
                answering=1,
                silent=[{"host": "h 2", "silent_s": 7200, "since": None, "last_seen": 12}],
                failed=[{"host": "h3", "reason": "no libvirt", "last_seen": 0}],
            ),
            [
                "hosts: 1 of 3 answer; VMs and room below are of these",
                "silent: h 2 does not answer (for 2 h, 12 VMs last seen there): "
                "salt-run virt.setup_check 'h 2'",
                "failed: h3: no libvirt: salt-run virt.setup_check h3",
            ],
        ),
        (
            hosts(
                maintenance=["h1"],
                shut_out=[{"host": "h9", "last_seen": 1}],
                without_key=["h8"],
            ),
            [
                "without a key: h8 (allowed, and no key of that id is accepted): salt-key -L",
                "maintenance: h1 gets no new VMs: salt-run virt.maintenance h1 off",
                "shut out: h9 (1 VM last seen there): salt-run virt.allow h9",
            ],
        ),
        (
            lines(vms={"total": 1, "by_state": {"crashed": 1}, "coming": 2, "last_seen": 3}),
            [
                "VMs: 1: 1 crashed; 2 on the way; 3 more last seen on hosts without an answer: "
                "salt-run virt.list state=crashed",
            ],
        ),
        (
            lines(room={**ANSWER["room"], "memory_mib": {**ROOM, "free_to_promise": 1 * GIB}}),
            [
                "memory: 10.0 GiB used, 24.0 promised, 1.0 free to promise: salt-run "
                "virt.host_info sort=memory",
            ],
        ),
        (
            lines(
                room={
                    **ANSWER["room"],
                    "disk_mib": {"used": 7, "promised": 9, "free_to_promise": 91, "limit": 100},
                }
            ),
            ["disk: 7 MiB used, 9 promised, 91 free to promise"],
        ),
        (
            lines(
                checks={
                    "doctor": {
                        **WELL,
                        "findings": 2,
                        "first": {"check": "lock", "where": "h1", "what": "w", "fix": "f"},
                    },
                    "audit": {**WELL, "findings": None, "hints": None, "error": "no CA"},
                    "setup_check": {**WELL, "hints": 1},
                }
            ),
            [
                "doctor: 2 things may be left over, first lock of h1: salt-run virt.doctor",
                "audit: it failed: no CA: salt-run virt.audit",
                "setup_check: nothing that VMs need is missing; 1 hint: salt-run virt.setup_check",
            ],
        ),
        (
            lines(
                certificates=[
                    {"host": "h1", "certificate": "qemu-server", "days_left": 12, "ends": "e"},
                    {"host": "h2", "certificate": "qemu-client", "days_left": -1, "ends": "e"},
                ]
            ),
            [
                "certificates: h2, qemu-client: has ended; h1, qemu-server: ends in 12 days: "
                "salt-run virt_pki.renew h1"
            ],
        ),
        (
            lines(
                certificates=[
                    {"host": None, "certificate": "/ca.pem", "days_left": 1, "ends": "e"},
                ]
            ),
            [
                "certificates: the authority, /ca.pem: ends in 1 day: salt-run virt_pki.rotate_ca",
            ],
        ),
        (
            lines(
                restart=[{"vm": "web 1", "host": "h1", "changes": ["4 CPUs", "NIC a"]}],
                unfinished=[
                    {"vm": "a", "host": None, "what": "command", "phase": "moving", "since": "s"},
                    {"vm": "b", "host": "h1", "what": "move", "phase": None, "since": None},
                ],
                at_work=["c"],
                keys_waiting=["k1", "k2"],
            ),
            [
                "at work: commands for c",
                "restart: 1 VM with changes for the next start, web 1 (4 CPUs, NIC a): "
                "salt-run virt.vm_info 'web 1'",
                "unfinished: command (moving) of a; move of b on h1: salt-run virt.doctor",
                "keys: 2 keys waiting to be accepted (k1, k2): salt-key -l unaccepted",
            ],
        ),
        (
            lines(
                unfinished=[
                    {"vm": "b", "host": "h1", "what": "move", "phase": "sending", "since": None}
                ]
            ),
            ["unfinished: move (sending) of b on h1: salt-run virt.settle"],
        ),
    ],
)
def test_a_line_that_needs_attention_ends_with_its_command(all_lines, expected):
    assert new_lines(all_lines) == expected


def test_a_thousand_silent_hosts_take_one_line():
    silent = [
        {"host": f"h{number}", "silent_s": None, "since": None, "last_seen": 0}
        for number in range(1000)
    ]

    (line,) = [line for line in hosts(answering=0, silent=silent) if line.startswith("silent")]

    assert "and 995 more" in line and len(line) < 250


def test_without_checks_there_are_no_lines_of_checks():
    assert not [line for line in lines(checks=None) if line.startswith(("doctor", "audit"))]


def test_the_page_shows_what_the_command_shows():
    silent = {"host": "hyper3", "silent_s": 7200, "since": None, "last_seen": 4}
    first = {"check": "libvirt-release", "where": "hyper1", "what": "w", "fix": "f"}
    disk = {"used": 123392, "promised": 317440, "free_to_promise": 706560, "limit": 1024000}
    shown_lines = lines(
        hosts={**HOSTS, "answering": 2, "silent": [silent]},
        vms={**ANSWER["vms"], "last_seen": 4},
        room={**ANSWER["room"], "disk_mib": disk},
        checks={**ANSWER["checks"], "audit": {**WELL, "findings": 2, "first": first}},
        restart=[{"vm": "web1", "host": "hyper1", "changes": ["4 CPUs"]}],
    )
    page = (Path(__file__).resolve().parents[3] / "docs/status.md").read_text()

    assert "\n".join(["```text", *shown_lines, "```"]) in page
