"""How a plan is shown in a terminal of 80 columns: hosts that fit, and remedies."""

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "_output"
FLEET = ROOT / "tests/data/fleets/three.json"


def output(data, name="virt_plan"):
    """Return data as an outputter shows it."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.output(data)


def test_the_table_of_a_plan_wraps_its_reasons():
    reasons = ["4096 MiB of memory wanted, 12 MiB free", "no bridge br7 there", "in maintenance"]
    plan = {
        "a": {"fits": True, "score": 0.5, "reasons": []},
        "b": {"fits": False, "score": 0.0, "reasons": reasons},
    }

    helps = [
        "less memory, or more to hand out: virt:memory_ratio",
        "salt-run virt.maintenance " * 4,
    ]
    answer = {"error": f"no host fits 'x': b: {reasons}; what helps: {helps}", "hosts": plan}
    text = output({**answer, "helps": helps, "retcode": 1})

    assert text.startswith("error: no host fits")
    assert text.count("in maintenance") == 1
    assert text.index("\na ") < text.index("\nb ") < text.index("\nwhat helps:\n  - less memory,")
    assert text.count("what helps") == 1 and max(map(len, text.splitlines())) <= 78


def test_the_dry_run_of_a_clone_says_how_it_will_be_seeded():
    plan = {"source": "web1", "name": "web2", "disks": [{"target": "vda", "path": "/srv/a.qcow2"}]}

    def shown(seed_method):
        seed = {"method": seed_method} if seed_method else None
        return output({"hyper1": {**plan, "seed": seed, "warnings": []}})

    assert "seeded by cloud-init (nocloud) if its guest has that, else in the appl" in shown("auto")
    assert shown("nocloud").splitlines()[-1] == "  seeded by nocloud"
    assert shown(None).splitlines()[-1] == "  not seeded"


def test_remedies_for_many_new_vms_stand_once_below_the_table():
    helps = ["less memory, or more to hand out: virt:memory_ratio, virt:capacity", "nic=nat"]
    error = f"1 of 2 VMs not built: b (b: no host fits: x); nothing was built; what helps: {helps}"
    failed = {"failed": {"b": "no host fits: x"}, "helps": helps}
    text = output({"error": error, "plan": {"a": "h1"}, **failed}, "virt_moves")

    assert text.splitlines() == [
        "error: 1 of 2 VMs not built: b (b: no host fits: x); nothing was built",
        "VM                WHERE",
        "a                 would go to h1",
        "b                 failed: no host fits: x",
        "what helps:",
        "  - less memory, or more to hand out: virt:memory_ratio, virt:capacity",
        "  - nic=nat",
    ]


def test_full_names_and_long_reasons_keep_the_table_as_wide_as_a_terminal():
    fleet = json.loads(FLEET.read_text())
    fleet["hyper2"]["maintenance"] = True
    fleet["hyper3"]["domain_types"] = {"default": None, "usable": [], "why": "KVM hangs " * 20}
    fleet_with_full_names = {f"{name}.dc1.example.org": info for name, info in fleet.items()}
    plan = {
        name: {"fits": False, "score": 0, "reasons": ["no room " * 20]}
        for name in fleet_with_full_names
    }

    lines = output(
        {**fleet_with_full_names, "failed": {"hyper9": "why " * 40}}, "virt_hosts"
    ).splitlines()
    plan_lines = output(plan).splitlines()

    assert max(map(len, [*lines, *plan_lines])) <= 80
    assert lines[1].startswith("hyper1.dc1.example.org ") and lines[1].endswith("2  qemu  up")
    assert lines[0].index("VMS") + 2 == lines[1].index("2  qemu")
    assert lines[2].endswith("maintenance")
    assert plan_lines[1] == "hyper1.dc1.example.org" and plan_lines[2].split()[:2] == ["no", "-"]
