"""What a plan says in a terminal of 80 columns: which hosts fit, and what helps."""

import importlib.util
from pathlib import Path

PLAN = Path(__file__).resolve().parents[2] / "_output/virt_plan.py"


def output(data):
    """Return what the outputter makes of data."""
    spec = importlib.util.spec_from_file_location("virt_plan", PLAN)
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
