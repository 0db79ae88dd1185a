"""What runner functions give to orchestrations, to programs, and to who types them."""

import json

import pytest
from loadkit import SALT_LINES, run

# It needs no minion.
BAD = "virt.unauthorize"
# A runner of ours that has something to show without hypervisors, and one of somebody's own.
OURS = """
from saltvirt.entry.runners import runner_function

@runner_function(outputter="virt_plan")
def made(name):
    return {"name": name, "host": "hyper1"}
"""
OWN = f"""
def asks():
    return {{"their": __salt__["{BAD}"]("nobody"), "made": __salt__["ours.made"]("vm1")}}
"""
MADE = {"name": "vm1", "host": "hyper1"}
STEPS = f"""
good:
  salt.runner:
    - name: ours.made
    - arg: [vm1]
bad:
  salt.runner:
    - name: {BAD}
    - arg: [nobody]
after:
  salt.runner:
    - name: ours.made
    - arg: [vm2]
    - require: [{{salt: bad}}]
"""
# A program with one client for all its calls.
PROGRAM = f"""
import json, sys
import salt.config, salt.runner
opts = salt.config.master_config(sys.argv[1])
client = salt.runner.RunnerClient(opts)
calls = [("ours.made", ["vm1"]), ("{BAD}", ["nobody"]), ("ours.made", ["vm1"])]
done = [client.cmd(*call, print_event=False, full_return=True) for call in calls]
print(json.dumps([{{key: one.get(key) for key in ("return", "success")}} for one in done]))
"""


@pytest.fixture(scope="module", params=SALT_LINES)
def salt(request, base, place):
    """Either Salt with the bundle, an orchestration and a runner of somebody's own."""
    made = place(base(request.param))
    files = {"steps.sls": STEPS, "_runners/own.py": OWN, "_runners/ours.py": OURS}
    for path, text in files.items():
        (made.folder / "srv" / path).parent.mkdir(parents=True, exist_ok=True)
        (made.folder / "srv" / path).write_text(text)
    assert made.runner("saltutil.sync_all").returncode == 0
    return made


def test_a_step_of_an_orchestration_is_what_its_runner_was(salt):
    done = salt.runner("state.orch", "steps", "--out=json")

    (states,) = json.loads(done.stdout)["data"].values()
    results = {key.split("_|-")[1]: state["result"] for key, state in states.items()}
    assert results == {"good": True, "bad": False, "after": False}
    ran = {key.split("_|-")[1]: state["changes"] for key, state in states.items()}
    assert ran["good"] == {"return": MADE}
    assert "nobody" in ran["bad"]["return"]["error"]
    assert done.returncode == 1


def test_a_program_gets_data_and_whether_it_went_well(salt):
    argv = [salt.venv / "bin/python3", "-c", PROGRAM, salt.etc / "master"]
    good, bad, again = json.loads(run(argv, cwd=salt.folder).stdout)

    assert (good["return"], good["success"]) == (MADE, True)
    assert bad["success"] is False and "nobody" in bad["return"]["error"]
    assert (again["return"], again["success"]) == (MADE, True)


def test_who_types_it_reads_a_table_or_asks_for_data(salt):
    assert salt.runner("ours.made", "vm1").stdout == "vm1 is on hyper1\n"
    assert json.loads(salt.runner("ours.made", "vm1", "--out=json").stdout) == MADE
    bad = salt.runner(BAD, "nobody")
    assert bad.returncode == 1
    assert bad.stdout.startswith("error: ") and bad.stdout.count("\n") == 1
    assert json.loads(salt.runner(BAD, "nobody", "--out=json").stdout)["retcode"] == 1


def test_help_needs_no_hypervisor(salt):
    shown = salt.runner("virt.help")
    assert shown.returncode == 0 and "Deploy and remove\nvirt.init " in shown.stdout
    assert "virt.pool_start *" in shown.stdout
    assert salt.runner("virt.help", "start").stdout.startswith("salt-run virt.start NAME\n")
    assert json.loads(salt.runner("virt.help", "stop", "--out=json").stdout)["command"]["undo"]
    assert salt.runner("virt.help", "zzz").returncode == 1


def test_a_runner_of_ones_own_gets_data_and_is_shown_as_ever(salt):
    shown = salt.runner("own.asks")
    data = json.loads(salt.runner("own.asks", "--out=json").stdout)

    assert "made:\n" in shown.stdout and "is on hyper1" not in shown.stdout
    assert data["made"] == MADE
    assert "nobody" in data["their"]["error"]


def test_a_master_above_syndics_is_led_to_cells(salt):
    above = salt.folder / "above"
    above.mkdir()
    given = json.loads((salt.etc / "master").read_text())
    (above / "master").write_text(json.dumps({**given, "order_masters": True}))
    done = run([salt.venv / "bin/salt-run", "-c", above, "virt.list", "--out=json"])

    assert done.returncode == 1
    error = json.loads(done.stdout)["error"]
    assert error.endswith("make the masters below cells of this one: docs/cells.md")
    assert ("order_masters" in error) == ("3008" in str(salt.venv))


def test_the_job_cache_keeps_data_and_whether_it_went_well(salt):
    salt.runner("ours.made", "vm1")
    salt.runner(BAD, "nobody")

    jobs = json.loads(salt.runner("jobs.list_jobs", "--out=json").stdout)
    jids = {job["Function"]: jid for jid, job in sorted(jobs.items())}
    kept = {
        fun: json.loads(salt.runner("jobs.list_job", jids[f"runner.{fun}"], "--out=json").stdout)
        for fun in ("ours.made", BAD)
    }

    (made,) = kept["ours.made"]["Result"].values()
    (bad,) = kept[BAD]["Result"].values()
    assert (made["return"]["return"], made["return"]["success"]) == (MADE, True)
    assert bad["return"]["success"] is False
