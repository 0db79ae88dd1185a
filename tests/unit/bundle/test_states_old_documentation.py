"""The examples in the documentation of Salt 3006's states apply, and change nothing again."""

import json
import subprocess

import asloaded
import olddocs
import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt import compat
from saltvirt.libvirt import connect
from saltvirt.libvirt.domains import query
from saltvirt.placement.answers import DomainTypes
from saltvirt.vm.show.host import inspect

URI = "test:///default"
FILES = ("defined", "networks", "pool")
CONTENT = {"default": [], "prod": {"eth0": {"type": "network", "source": "admin"}}}
POOL = "<pool type='dir'><name>default</name><target><path>{}</path></target></pool>"
NETWORK = "<network><name>admin</name></network>"


@pytest.fixture
def states(tmp_path, monkeypatch, fresh_driver):
    """The states on libvirt's test driver, which has the objects that the documentation assumes."""
    types = DomainTypes(default="test", usable=["test"], why="")
    monkeypatch.setattr(inspect, "domain_types", lambda *_: types)
    monkeypatch.setattr(query, "node", lambda _conn: {"phymemory": 16384, "cpus": 16})
    monkeypatch.setattr(inspect.hostfacts, "free_memory_mib", lambda _conn: 16384)
    monkeypatch.setattr(compat, "ask_pillar", lambda *_args, **_kwargs: {})
    options = {
        "connection": {"uri": URI},
        "images": str(tmp_path / "images"),
        "state_dir": str(tmp_path / "state"),
        "nic": CONTENT,
        "disk": {"prod": [{"name": "system", "size": 8}]},
        "capacity": {"disk_mib": 10**6},
        "console_log": False,
    }
    image = tmp_path / "image.qcow2"
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", image, "8M"], check=True)
    modules = [asloaded.module(f"_states/virt_{name}.py", id="h1") for name in FILES]
    for module in modules:
        module.__opts__.update(virt=options, file_client="local", cachedir=str(tmp_path / "cache"))

    def apply(function, options, *, test):
        module = next(module for module in modules if hasattr(module, function))
        module.__opts__["test"] = test
        texts = json.dumps(options).replace("IMAGE", str(image))
        return getattr(module, function)("documented", **json.loads(texts))

    with connect.open_connection(HostSettings(uri=URI), readonly=False) as conn:
        (tmp_path / "pool").mkdir()
        conn.storagePoolDefineXML(POOL.format(tmp_path / "pool")).create()
        conn.networkDefineXML(NETWORK).create()
        yield apply


@pytest.mark.parametrize(
    ("state", "options"),
    [row[1:] for row in olddocs.DOCUMENTED],
    ids=[row[0] for row in olddocs.DOCUMENTED],
)
def test_documented_states_apply_and_change_nothing_again(states, state, options):
    forecast = states(state, options, test=True)
    answer = states(state, options, test=False)
    second_answer = states(state, options, test=False)

    assert (forecast["result"], answer["result"]) == (None, True), (forecast, answer)
    assert forecast["changes"] == answer["changes"] != {}
    assert (second_answer["result"], second_answer["changes"]) == (True, {}), second_answer


@pytest.mark.parametrize(
    ("state", "options", "reason"),
    [row[1:] for row in olddocs.NEVER],
    ids=[row[0] for row in olddocs.NEVER],
)
def test_documented_states_that_never_worked_are_refused(states, state, options, reason):
    answer = states(state, options, test=False)

    assert answer["result"] is False and reason in answer["comment"]
