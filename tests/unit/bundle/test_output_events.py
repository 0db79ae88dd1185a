"""The outputters get everything that a runner prints, also events of the master's bus."""

import importlib.util
import json
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "_output"


@pytest.mark.parametrize(
    "data",
    [
        {"tag": "salt/run/20270101/ret", "data": {"return": True, "jid": "20270101", "n": 1.5}},
        {"tag": "salt/job/1/new", "data": {"minions": ["h1"], "fun": "virt.init"}},
        {"hyper1": {"web1": None}},
        {"hyper1": {"node_info": {}, "vm_info": {}}},
        {"hyper1": "no", "failed": ["x"]},
        {"hyper1": None},
        {"duplicates": {"a": None}},
    ],
)
def test_data_of_another_shape_is_shown_unchanged(data):
    spec = importlib.util.spec_from_file_location("virt_query", FOLDER / "virt_query.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    assert json.loads(module.output(data)) == data
