"""What the documentation of Salt 3006's states shows applies, and changes nothing again."""

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
    """The states on libvirt's test driver, which has what the documentation takes for granted."""
    types = DomainTypes(default="test", usable=["test"], why="")
    monkeypatch.setattr(inspect, "domain_types", lambda *_: types)
    monkeypatch.setattr(query, "node", lambda _conn: {"phymemory": 16384, "cpus": 16})
    monkeypatch.setattr(inspect.hostfacts, "free_memory_mib", lambda _conn: 16384)
    monkeypatch.setattr(compat, "ask_pillar", lambda *_args, **_given: {})
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
    loaded = [asloaded.module(f"_states/virt_{name}.py", id="h1") for name in FILES]
    for one in loaded:
        one.__opts__.update(virt=options, file_client="local", cachedir=str(tmp_path / "cache"))

    def apply(function, given, *, test):
        module = next(one for one in loaded if hasattr(one, function))
        module.__opts__["test"] = test
        texts = json.dumps(given).replace("IMAGE", str(image))
        return getattr(module, function)("documented", **json.loads(texts))

    with connect.open_connection(HostSettings(uri=URI), readonly=False) as conn:
        (tmp_path / "pool").mkdir()
        conn.storagePoolDefineXML(POOL.format(tmp_path / "pool")).create()
        conn.networkDefineXML(NETWORK).create()
        yield apply


@pytest.mark.parametrize(
    ("state", "given"),
    [one[1:] for one in olddocs.DOCUMENTED],
    ids=[x[0] for x in olddocs.DOCUMENTED],
)
def test_what_it_shows_applies_and_changes_nothing_again(states, state, given):
    said = states(state, given, test=True)
    done = states(state, given, test=False)
    again = states(state, given, test=False)

    assert (said["result"], done["result"]) == (None, True), (said, done)
    assert said["changes"] == done["changes"] != {}
    assert (again["result"], again["changes"]) == (True, {}), again


@pytest.mark.parametrize(
    ("state", "given", "why"), [one[1:] for one in olddocs.NEVER], ids=[x[0] for x in olddocs.NEVER]
)
def test_what_never_could_be_applied_says_why(states, state, given, why):
    done = states(state, given, test=False)

    assert done["result"] is False and why in done["comment"]
