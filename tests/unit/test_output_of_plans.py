"""What a plan says in a terminal of 80 columns: which hosts fit, and what helps."""

import importlib.util
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "_output"


def output(data, name="virt_plan"):
    """Return what an outputter makes of data."""
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
    said = {"error": f"no host fits 'x': b: {reasons}; what helps: {helps}", "hosts": plan}
    text = output({**said, "helps": helps, "retcode": 1})

    assert text.startswith("error: no host fits")
    assert text.count("in maintenance") == 1
    assert text.index("\na ") < text.index("\nb ") < text.index("\nwhat helps:\n  - less memory,")
    assert text.count("what helps") == 1 and max(map(len, text.splitlines())) <= 78


def test_the_dry_run_of_a_clone_says_how_it_will_be_seeded():
    plan = {"source": "web1", "name": "web2", "disks": [{"target": "vda", "path": "/srv/a.qcow2"}]}

    def said(method):
        seed = {"method": method} if method else None
        return output({"hyper1": {**plan, "seed": seed, "warnings": []}})

    assert "seeded by cloud-init (nocloud) if its guest has that, else in the appl" in said("auto")
    assert said("nocloud").splitlines()[-1] == "  seeded by nocloud"
    assert said(None).splitlines()[-1] == "  not seeded"


def test_of_many_new_vms_what_helps_stands_once_below_the_table():
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
