"""A swarm answers as hypervisors do: real keys, real returns, our own modules, on both Salts."""

import json
import os
import subprocess
import time
from pathlib import Path

import pytest
from conftest import at_first, vms_by_host
from swarmkit import conf, life
from swarmkit.settings import SWARMS


def net_of(pid):
    """Return the network namespace of a process, None if that is gone, or not to be looked at."""
    try:
        return str(Path(f"/proc/{pid}/ns/net").readlink())
    except (FileNotFoundError, PermissionError):
        return None


def placed(done):
    """Return the host that a VM was deployed on."""
    assert done.code == 0, done.out + done.err
    return done.data["host"]


def purged(swarm, name):
    done = swarm.run("virt.purge", name)
    assert done.code == 0, done.out + done.err


def test_every_host_answers_with_its_own_accepted_key(swarm):
    assert swarm.ping() == set(swarm.spec.ids)
    keys = swarm.sh('sha256sum "$1"/*/pki/minion.pub | cut -d" " -f1 | sort -u', conf.HOSTS)
    assert len(keys.split()) == swarm.spec.hosts


def test_the_runner_lists_all_vms(swarm):
    assert vms_by_host(swarm.run("virt.list").data) == at_first(swarm.spec)


def test_hosts_of_one_process_answer_each_for_itself(older):
    assert vms_by_host(older.run("virt.list").data) == at_first(older.spec)
    info = older.run("virt.host_info")
    assert set(info.data) == set(older.spec.ids), info.out + info.err


def test_host_info_query_and_vm_info(swarm):
    info = swarm.run("virt.host_info").data
    assert set(info) == set(swarm.spec.ids)
    assert info["h0003"]["memory"]["committed_mib"] == 5 * 512
    assert set(swarm.run("virt.query").data) == set(swarm.spec.ids)
    found = swarm.run("virt.vm_info", "vm-h0003-001").data
    assert found["h0003"]["vm-h0003-001"]["state"] == "running"


def test_a_vm_is_deployed_stopped_started_and_purged(swarm):
    dry = swarm.run("virt.init", "web1", 1, 512, "seed=False", "dry_run=True")
    assert dry.code == 0 and "web1" not in str(swarm.run("virt.list").data)

    host = placed(swarm.run("virt.init", "web1", 1, 512, "seed=False"))
    assert swarm.domains(host)["web1"]["live"]
    assert swarm.run("virt.stop", "web1").code == 0
    assert swarm.domains(host)["web1"]["live"] is None
    assert swarm.run("virt.start", "web1").code == 0
    assert swarm.domains(host)["web1"]["live"]
    purged(swarm, "web1")

    assert "web1" not in swarm.domains(host)
    assert "web1" not in swarm.sh('ls "$1"', conf.HOSTS / host / "img")


def test_progress_comes_while_a_host_is_at_it(swarm):
    done = swarm.shown("virt.init", "web2", 1, 512, "seed=False")
    purged(swarm, "web2")

    assert "web2: Starting" in done.out


def test_a_job_is_found_while_it_is_done_and_can_be_ended(swarm):
    rule = {"host": "h0004", "fun": "virt.vm_state", "slow_s": 60}
    with swarm.failing(rule):
        process = subprocess.Popen(
            life.salt(swarm.place, "salt", ["h0004", "virt.vm_state", "--async"]),
            stdout=subprocess.PIPE,
            text=True,
        )
        jid = process.communicate()[0].split()[-1]
        time.sleep(1)
        found = swarm.salt("h0004", "saltutil.find_job", jid).data["h0004"]
        assert (found["fun"], found["jid"]) == ("virt.vm_state", jid)
        ended = swarm.salt("h0004", "saltutil.term_job", jid).data["h0004"]
        assert jid in ended
        time.sleep(1)
        assert swarm.salt("h0004", "saltutil.find_job", jid).data["h0004"] == {}


def test_a_host_without_our_function_says_so(swarm):
    assert "not available" in swarm.salt("h0001", "virt.no_such_thing").data["h0001"]


def test_a_silent_host_is_named_and_others_are_heard(swarm):
    with swarm.failing({"host": "h0005", "silent": True}):
        assert swarm.ping(["h0005", "h0006"], wait_s=3) == {"h0006"}
    assert "h0005" in swarm.ping(["h0005"])


def test_an_injected_error_is_that_hosts_answer(swarm):
    with swarm.failing({"host": "h0007", "fun": "virt.host_info", "error": "the disk is on fire"}):
        done = swarm.run("virt.host_info")

    assert "the disk is on fire" in done.out + done.err
    assert "h0008" in done.data


def test_a_stream_has_a_line_of_each_host_as_it_answers(swarm):
    dead, slow, odd = "h0003", "h0005", "h0007"
    faults = [
        {"host": dead, "silent": True},
        {"host": slow, "fun": "virt.vm_state", "slow_s": 1},
        {"host": odd, "fun": "virt.vm_state", "error": "the disk is on fire"},
    ]
    with swarm.failing(*faults):
        done = swarm.shown("virt.list", "stream=True")
        whole = swarm.run("virt.list", "stream=True")

    lines = [json.loads(line) for line in done.out.splitlines()]
    hosts = [line["host"] for line in lines]
    assert done.code == 0 and sorted(hosts) == swarm.spec.ids
    assert hosts[-3:] == [slow, odd, dead], "the slow one, then who gave no answer"
    assert "the disk is on fire" in lines[-2]["failed"]
    assert lines[-1]["unreachable"] is True and lines[-1]["silent_s"] >= 0
    assert set(lines[0]["answer"]) == {"running"}
    # Who asks for data gets all of it at the end.
    assert {line["host"]: line["answer"] for line in lines[:-2]} == {
        host: one for host, one in whole.data.items() if host[0] == "h"
    }
    assert whole.data["unreachable"] == [dead]


def test_images_that_nobody_uses_are_removed_at_once_with_progress(swarm):
    done = swarm.shown("virt.image_prune", "dry_run=True")

    assert done.code == 0 and "images: Searching (20 hypervisors)" in done.out


def test_a_slow_link_delays_one_host(swarm):
    with swarm.failing({"host": "h0009", "latency_s": 1}):
        late = swarm.salt("h0009", "test.ping").seconds
        soon = swarm.salt("h0010", "test.ping").seconds

    assert late - soon > 1.2


def test_libvirts_refusal_is_undone_and_the_vm_goes_nowhere(swarm):
    with swarm.failing({"libvirt": {"create": "no room for it"}}):
        done = swarm.run("virt.init", "web3", 1, 512, "seed=False", "host=h0011")

    assert done.code != 0
    assert "no room for it" in done.out + done.err
    assert "web3" not in swarm.domains("h0011")
    assert "web3" not in swarm.sh('ls "$1"', conf.HOSTS / "h0011/img")


def test_a_host_that_dies_comes_back_with_its_vms(swarm):
    before, pid = swarm.domains("h0012"), swarm.pid("h0012")
    life.signal_from(swarm.place, conf.HOSTS / "h0012/pid", "KILL")
    swarm.wait_for(["h0012"])

    assert swarm.pid("h0012") != pid
    assert swarm.domains("h0012") == before


def test_two_swarms_do_not_see_each_other(swarm, older):
    assert older.ping() == set(older.spec.ids)
    host = placed(older.run("virt.init", "web9", 1, 512, "seed=False"))
    assert "web9" in older.domains(host)
    assert all("web9" not in swarm.domains(one) for one in older.spec.ids)


def test_salts_own_runner_of_3006_finds_the_hosts(older):
    done = older.shown("virt.list", config="core")

    assert all(f"{host}:" in done.out for host in older.spec.ids)
    assert "vm-h0003-001" in done.out


@pytest.mark.parametrize("words", [["up", "0"], ["faults", '[{"hots": 1}]'], ["kill", "nobody"]])
def test_what_makes_no_sense_is_refused_in_one_line(swarm, words):
    done = subprocess.run(
        ["tests/swarm/swarm", *words], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert done.stderr.startswith("swarm: ") and "Traceback" not in done.stderr


def test_nothing_stays_of_a_swarm_that_is_taken_down(older):
    folder, pid = older.place.folder, life.pid_of(older.place)
    assert folder.is_relative_to(SWARMS) and pid is not None
    network = net_of(pid)
    mine = [one for one in os.listdir("/proc") if one.isdigit() and net_of(one) == network]
    assert len(mine) > older.spec.hosts

    life.down(older.place)

    assert not folder.exists()
    assert [one for one in mine if net_of(one) == network] == []
