"""A check of the setup finds each gap with its fix, in the order in which they are needed."""

import dataclasses
import json
import random
import re
from pathlib import Path

import pytest
from hostiletext import steering
from saltvirt.checks.master import runningmaster
from saltvirt.checks.setup.master import run
from saltvirt.checks.setup.master.run import ORDER
from saltvirt.checks.setup.master.setupcloud import LEVELS, MOVING, NEEDED
from saltvirt.cluster.inventory import lastseen
from saltvirt.cluster.rpc import waits
from saltvirt.core.errors import BadArgument
from saltvirt.core.findings import Finding
from setupgaps import (
    NOT_LOADED,
    PLANTED,
    candidate,
    moving,
    says,
    tells,
    time_off,
    unheard,
    unserved,
)
from setupkit import HOSTS, ROOT, SERVED

ALONE = {name: row for name, row in PLANTED.items() if row[1]}


def test_a_complete_setup_has_no_findings(setup):
    data, is_whole = setup.data()

    assert data == {"findings": [], "checked": list(HOSTS), "ready": run.READY} and is_whole
    assert sorted(setup.asked) == list(HOSTS)


@pytest.mark.parametrize("plant", ALONE)
def test_each_planted_gap_is_the_only_finding(setup, plant):
    do, check, where, level, fix = ALONE[plant]
    do(setup)

    assert setup.check() == [(check, where, level)]
    data, is_whole = setup.data()
    assert fix in data["findings"][0]["fix"]
    # A gap that VMs need fixed fails the check; any other one is shown, and the setup is ready.
    assert is_whole is (level != NEEDED) is ("ready" in data)


def test_a_different_hash_type_is_found_on_the_master_and_on_hosts(setup):
    PLANTED["hash_type"][0](setup)

    assert [finding[:2] for finding in setup.check()] == [
        ("hash-type", "master"),
        ("hash-type", "hyper1"),
        ("hash-type", "hyper2"),
    ]


def test_a_gap_is_planted_for_each_check():
    # Gaps of cells are planted in test_checks_failing_cells.py.
    assert {row[1] for row in ALONE.values()} | {"hash-type", "cells"} == set(ORDER)


@pytest.mark.parametrize("seed", range(20))
def test_findings_are_sorted_by_level_and_check(seed):
    chance = random.Random(seed)
    all_findings = [
        Finding("w", "f", check=check, where=where, level=level)
        for check in ORDER
        for where in ("master", "hyper1", "hyper2")
        for level in LEVELS
    ]
    sample = chance.sample(all_findings, 60)

    findings = run.sort_findings(sample)

    assert sorted(findings, key=str) == sorted(sample, key=str)
    ranks = [(LEVELS.index(finding.level), ORDER.index(finding.check)) for finding in findings]
    assert ranks == sorted(ranks)
    # The findings of a level come before those that only later levels need.
    assert [finding.level for finding in findings if finding.level == NEEDED] == [
        finding.level
        for finding in findings[: sum(finding.level == NEEDED for finding in findings)]
    ]


def test_findings_begin_with_those_that_others_depend_on(setup):
    for plant in ("no image", "bridge", "users", "key waits", "no modules"):
        PLANTED[plant][0](setup)

    assert [finding[0] for finding in setup.check()] == [
        *("modules-served", "keys", "bridge", "appliance-users", "image")
    ]


@pytest.mark.parametrize("offset_s", [-59, 59])
def test_a_clock_with_a_small_offset_is_not_found(setup, offset_s):
    time_off(offset_s)(setup)

    assert setup.check() == []


def test_a_host_that_is_not_allowed_can_be_named(setup):
    candidate(setup)
    setup.wait("hyper8")

    assert setup.check("hyper9,hyper8", "hyper7") == [
        ("hypervisors", "hyper9", NEEDED),
        ("keys", "hyper7", NEEDED),
        ("keys", "hyper8", NEEDED),
    ]
    # Such a minion is not asked, because its answer would not count.
    assert setup.asked == []


def test_the_short_name_of_a_host_suggests_its_id(setup):
    (finding,) = setup.data("Hyper1.example.org")[0]["findings"]

    assert finding["what"].startswith(
        "no minion has shown its key; is hyper1 meant? if none is to c"
    )


def test_only_hosts_that_are_named_are_asked(setup):
    says(code="x")(setup)

    assert setup.check("hyper2") == [] and setup.asked == ["hyper2"]
    assert setup.check("hyper2,") == []  # as in "hyper2, hyper3" on a command line


def test_a_named_host_checks_whether_others_accept_its_connections(setup):
    peer_facts = setup.facts["hyper2"].moving
    closed_facts = dataclasses.replace(peer_facts, peers={"hyper1": "timed out"})
    setup.facts["hyper2"] = dataclasses.replace(setup.facts["hyper2"], moving=closed_facts)

    assert setup.check("hyper2") == [("firewall", "hyper1", MOVING)]
    assert setup.asked == ["hyper2"] and [*setup.others] == ["hyper1"]
    # A silent host cannot be reached, with any firewall.
    waits.record_silence(setup.opts, ["hyper1"], ["hyper1"], lambda _host: True)
    assert setup.check("hyper2") == [] and setup.others == {}


@pytest.mark.parametrize("wrong_name", [[""], [","], [5], [["hyper1"]]])
def test_a_wrong_name_of_a_host_is_refused(setup, wrong_name):
    with pytest.raises(BadArgument, match="is not (the id of a minion|text)"):
        setup.data(*wrong_name)


def test_a_key_that_waits_under_a_glob_is_not_proposed(setup):
    setup.opts["virt"] = {"hypervisors": ["hyper*"]}
    setup.wait("hyper*")

    assert setup.check() == []


def test_names_of_links_that_jinja_would_run_are_in_no_fix(setup):
    tells(bridges=[], links=["{{salt.cmd.run('x')}}"])(setup)

    (finding,) = setup.data()[0]["findings"]
    assert "hypervisor: {bridges: {br0: {ports: [NIC]}}}" in finding["fix"]


def test_a_guest_is_not_proposed_as_a_hypervisor(setup):
    candidate(setup)
    lastseen.refresh(setup.opts, lastseen.ReportedNames(names_by_host={"hyper1": ["hyper9"]}))

    assert setup.check() == []


def test_a_port_where_nothing_listens_is_not_a_firewall(setup):
    moving(peers={"hyper2": "Connection refused"})(setup)
    nothing = dataclasses.replace(setup.facts["hyper2"].moving, listens=False)
    setup.facts["hyper2"] = dataclasses.replace(setup.facts["hyper2"], moving=nothing)

    assert setup.check() == [("tls", "hyper2", MOVING)]


def test_a_project_installed_by_pip_needs_no_file_server(setup):
    setup.opts["extension_modules"] = str(setup.folder / "extmods")
    unserved(SERVED[0])(setup)
    assert setup.check() == []

    unheard(NOT_LOADED)(setup)
    assert "salt-pip install" in setup.data()[0]["findings"][0]["fix"]


def test_a_master_that_started_after_its_configuration_is_not_to_be_restarted(setup):
    after = Path(setup.opts["conf_file"]).stat().st_mtime + 1
    setup.monkeypatch.setattr(runningmaster, "_read_start_s", lambda _path: after)

    assert setup.check() == []


def test_the_page_has_each_check_and_each_level_in_the_order_of_need():
    page = (ROOT / "docs/setup-check.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \|", page.split("## What is looked at")[1], re.M)

    assert rows == list(ORDER)
    assert [level for level in LEVELS if f"`{level}`" not in page] == []


def test_the_answer_is_plain_data(setup):
    bridge = PLANTED["bridge"][0]
    bridge(setup)

    data, _is_whole = setup.data()

    assert json.loads(json.dumps(data)) == data


@pytest.mark.parametrize("name", ["hyper3\x1b[2A\r    hyper3", "hyper\u202e3", "hyper 3"])
def test_a_key_that_waits_under_an_odd_id_is_a_hint_and_in_no_command(setup, name):
    setup.opts["virt"] = {"hypervisors": ["hyper*"]}
    setup.wait(name)

    assert setup.check() == [("keys", "master", "hint")]
    (finding,) = setup.data()[0]["findings"]
    assert "do not accept its key" in finding["what"] and "salt-key" not in finding["fix"]
    assert steering(f"{finding['what']} {finding['fix']}", lines=False) == set()
