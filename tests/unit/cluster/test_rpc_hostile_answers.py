"""A hypervisor with hostile answers gets an error line, and the others' answers stand."""

import functools
import importlib.util
import io
import json
import logging
import os
import pkgutil
import sys
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import answershapes
import hostilehost
import keypairs
import pytest
import salt.loader
from hostilehost import HOSTILE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from saltvirt import cells, cluster, migration, vm
from saltvirt.cluster import cloud as clouds
from saltvirt.cluster import minionkeys
from saltvirt.cluster.rpc import minions
from saltvirt.core.salt import compat
from saltvirt.entry import runners
from saltvirt.migration.master import evacuate, moveexecutor
from saltvirt.vm.create.master import hostbuild
from sizes import sizes

# What is imported when it is used would be compiled, and written, in the middle of a test.
for _package in (cells, cluster, migration, vm):
    for _module in pkgutil.walk_packages(_package.__path__, f"{_package.__name__}."):
        if ".host" not in _module.name:
            importlib.import_module(_module.name)

ROOT = Path(__file__).resolve().parents[3]
RUNNERS = (
    "virt",
    "virt_act",
    "virt_allow",
    "virt_cells",
    "virt_clone",
    "virt_details",
    "virt_device",
    "virt_files",
    "virt_guest",
    "virt_host",
    "virt_image",
    "virt_key",
    "virt_look",
    "virt_many",
    "virt_migrate",
    "virt_pki",
    "virt_vm",
)
IMAGE = "salt://a.qcow2"
NEW = {"name": "fresh", "cpu": 1, "mem": 1, "image": IMAGE}
COPY = {"source": "own", "name": "fresh"}
MANY = {**NEW, "name": "fresh{}", "count": 1}
# Each function that asks hosts: its arguments, and its VM or image.
CALLS = [
    ("virt_look", "query", {}, None),
    ("virt_look", "list_", {}, None),
    ("virt_look", "host_info", {}, None),
    ("virt_look", "next_host", {}, None),
    ("virt_look", "query", {"name": "own,web"}, None),
    ("virt_look", "query", {"fields": "state,disks", "sort": "memory"}, None),
    ("virt_look", "query", {"stream": True}, None),
    ("virt_look", "list_", {"tag": "hold"}, None),
    ("virt_look", "host_info", {"fields": "cpu,vms", "sort": "disk"}, None),
    ("virt_vm", "vm_info", {"name": "web"}, "web"),
    ("virt_vm", "vm_info", {"name": "own"}, "own"),
    ("virt_vm", "console_log", {"name": "own"}, "own"),
    ("virt_cells", "find", {"name": "web"}, "web"),
    ("virt_cells", "find", {"name": "own,web"}, None),
    ("virt_host", "host_lost", {"host": "h1"}, None),
    ("virt_host", "host_lost", {"host": HOSTILE}, None),
    ("virt", "init", {**NEW, "dry_run": True}, "fresh"),
    ("virt", "init", {**NEW, "wait": False}, "fresh"),
    ("virt", "init", {**NEW, "wait": False, "host": HOSTILE}, "fresh"),
    ("virt_clone", "clone", {**COPY, "dry_run": True}, "fresh"),
    ("virt_clone", "clone", {**COPY, "wait": False}, "fresh"),
    ("virt_clone", "clone", {**COPY, "source": "web", "wait": False}, "fresh"),
    ("virt_many", "init_many", {**MANY, "dry_run": True}, "fresh1"),
    ("virt_many", "init_many", {**MANY, "wait": False}, "fresh1"),
    ("virt_many", "init_many", {**MANY, "wait": False, "host": HOSTILE}, "fresh1"),
    ("virt_many", "init_many", {**MANY, "wait": False, "all_or_nothing": True}, "fresh1"),
    ("virt", "start", {"name": "own"}, "own"),
    ("virt", "stop", {"name": "own"}, "own"),
    ("virt", "shutdown", {"name": "web", "wait": False}, "web"),
    ("virt", "reset", {"name": "own"}, "own"),
    ("virt", "pause", {"name": "own"}, "own"),
    ("virt", "resume", {"name": "own"}, "own"),
    ("virt", "start", {"name": "own", "dry_run": True}, "own"),
    ("virt", "reset", {"name": ["own"]}, "own"),
    ("virt", "reset", {"name": "ow*", "max_parallel": 1}, "own"),
    ("virt_act", "update", {"name": "own", "cpu": 2}, "own"),
    ("virt_act", "setmem", {"name": "web", "memory": 5}, "web"),
    ("virt_act", "snapshot", {"name": "own"}, "own"),
    ("virt_act", "hold", {"name": "own"}, "own"),
    ("virt_act", "undefine", {"name": "own"}, "own"),
    ("virt_device", "disk_add", {"name": "own", "disk": "d", "size": "1G"}, "own"),
    ("virt_device", "disk_remove", {"name": "own", "disk": "d", "file": True}, "own"),
    ("virt_device", "move_disk", {"name": "own", "disk": "d", "pool": "p"}, "own"),
    ("virt_device", "eject", {"name": "own", "dry_run": True}, "own"),
    ("virt_details", "get_disks", {"name": "own"}, "own"),
    ("virt_details", "list_snapshots", {"name": "ow*"}, "own"),
    ("virt_details", "get_macs", {"name": "web"}, "web"),
    ("virt_details", "vm_netstats", {"name": "own"}, "own"),
    ("virt_files", "delete_snapshots", {"name": "own", "all": True}, "own"),
    ("virt_files", "revert_snapshot", {"name": "own"}, "own"),
    ("virt_guest", "guest_info", {"name": "own"}, "own"),
    ("virt_guest", "guest_exec", {"name": "own", "timeout_s": 5}, "own"),
    ("virt", "purge", {"name": "own"}, "own"),
    ("virt", "purge", {"name": "nothing"}, "nothing"),
    ("virt_image", "images", {}, None),
    ("virt_image", "image_pull", {"image": IMAGE}, None),
    ("virt_image", "image_prune", {}, None),
    ("virt_image", "image_build", {"source": IMAGE, "name": "img", "host": HOSTILE}, "img"),
    ("virt_migrate", "migrate", {"name": "own"}, "own"),
    ("virt_migrate", "migrate", {"name": "own", "dry_run": True}, "own"),
    ("virt_migrate", "migrate", {"name": "web", "target": HOSTILE}, "web"),
    ("virt_migrate", "migrate", {"name": "web", "target": "h2"}, "web"),
    ("virt_migrate", "settle", {}, None),
    ("virt_migrate", "settle", {"name": "own"}, "own"),
    ("virt_migrate", "settle", {"name": "coming", "force": True}, "coming"),
    ("virt_migrate", "maintenance", {"host": HOSTILE}, None),
    ("virt_migrate", "evacuate", {"host": HOSTILE, "wait_s": 0}, "own"),
    ("virt_migrate", "evacuate", {"host": HOSTILE, "dry_run": True}, "own"),
    ("virt_migrate", "restore", {"host": HOSTILE, "dry_run": True}, None),
    ("virt_migrate", "restore", {"host": "h1"}, None),
    ("virt_migrate", "rebalance", {"window_s": 1}, None),
    ("virt_pki", "renew", {}, None),
    ("virt_key", "authorize", {"name": "fresh", "host": HOSTILE}, "fresh"),
]
# Functions that a command may call for other VMs than its own, because they only read, or record
# where VMs were.
HARMLESS = {
    "virt.maintenance",
    "virt.evacuated",
    "virt.migrate_check",
    "virt.image_pull",
    "virt.host_info",
    "virt.placement_facts",
    "virt.migration_info",
    "virt.vm_info",
    "virt.console_log",
}
SURVEYS = {"query": "full_info", "host_info": "host_info", "images": "images", "list_": "vm_rows"}
NASTY = [
    None,
    True,
    -1,
    0,
    2**63,
    10**400,
    -(10**30),
    1e308,
    float("nan"),
    float("inf"),
    -float("inf"),
    "",
    "a\nb",
    "web",
    "h1",
    "db",
    "h2",
    "running",
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31m\r\x08\x00",
    "\u202eevil\u2028",
    "\ud800",
    "../../../../tmp/out",
    "/etc/cron.d/x",
    "--help",
    "-rf",
    "{0} %s {x.__class__}",
    "x" * 5000,
    [],
    {},
    [{}],
    {"": None},
    {"\x1b[31m\n": "\x1b[31m"},
    functools.reduce(lambda inner, _n: [inner], range(200), 1),
]
RAW = [
    None,
    b"\xff\xfe",
    {},
    [],
    "\ud800",
    {"said": b"\xff", "signature": b"\xff"},
    {"said": "{}", "signature": "ä"},
    {"said": 1, "signature": []},
]
TEXT = ["{", "[" * 100_000, '{"minion": NaN}', "null", "\ud800", "1" * 5000, '"\x00"']
JUNK = st.sampled_from(NASTY) | st.text(max_size=8) | st.integers()
WITHIN = st.tuples(
    st.sampled_from(["set", "set", "drop", "drop", "name"]), st.sampled_from(range(200)), JUNK
)
CHANGE = st.one_of(
    *[WITHIN] * 12,
    st.tuples(st.just("field"), st.sampled_from(range(6)), JUNK),
    st.tuples(st.just("raw"), st.just(0), st.sampled_from(RAW)),
    st.tuples(st.just("text"), st.just(0), st.sampled_from(TEXT)),
)

# All files that are written during a command; None outside of it.
_written = None


def _audited(event, args):
    if _written is None:
        return
    flags = os.O_WRONLY | os.O_RDWR | os.O_CREAT
    if event == "open" and isinstance(args[0], str | bytes) and args[2] & flags:
        _written.append(os.fsdecode(args[0]))
    elif event in ("os.mkdir", "os.remove", "os.rmdir", "os.chmod", "os.truncate"):
        # A number is the descriptor of an open file.
        _written.extend([args[0]] if isinstance(args[0], str) else [])
    elif event in ("os.rename", "os.link", "os.symlink"):
        _written.extend(map(str, args[:2]))
    elif event in ("subprocess.Popen", "os.system", "os.exec"):
        _written.append(f"a process: {args}")


sys.addaudithook(_audited)


@functools.cache
def outputter(name):
    """Load an outputter as Salt's loader does: by its file."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "_output" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.output


@pytest.fixture
def lab(monkeypatch, opts, tmp_path):
    """A master with fake hosts, which each example starts anew."""
    monkeypatch.setattr(compat, "KeyStore", hostilehost.Keys)
    monkeypatch.setattr(os, "fsync", lambda _handle: None)
    for host in ("h1", "h2", HOSTILE):
        minionkeys.accept(opts, host, keypairs.named(host)[0])
    opts |= {"virt": {"hypervisors": ["h1", "h2", "h3"], "timeout_s": 5, "deploy_timeout_s": 10}}
    opts |= {"color": False, "user": "root"}
    nested = salt.loader.outputters(opts)["nested"]
    sealed = lambda _opts, _host, text: text  # noqa: E731 (no test needs more)
    monkeypatch.setattr(minionkeys, "seal_for", sealed)
    monkeypatch.setattr(clouds.Cloud, "client", lambda _self: nullcontext(hostilehost.Local()))
    monkeypatch.setattr(hostbuild, "_UNDOING_S", (0,))
    monkeypatch.setattr(moveexecutor, "_PATIENCE_S", -1)
    monkeypatch.setattr(moveexecutor, "LIMIT_S", 20)
    monkeypatch.setattr(moveexecutor, "_OVERHEAD_S", 5)
    monkeypatch.setattr(evacuate, "_LOOK_S", 0)
    modules = {name: _runner(name, opts) for name in RUNNERS}
    return SimpleNamespace(opts=opts, folder=tmp_path, modules=modules, nested=nested)


def _runner(name, opts):
    spec = importlib.util.spec_from_file_location(f"hostile_{name}", ROOT / f"_runners/{name}.py")
    module = importlib.util.module_from_spec(spec)
    module.__opts__, module.__context__, module.__jid_event__ = opts, {}, None
    spec.loader.exec_module(module)
    return module


def _clear(folder):
    for path in sorted((folder / "cache").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    for path in (folder / "pki/minions").iterdir():
        if path.name not in ("h1", "h2", HOSTILE):
            path.unlink()


def play(lab, monkeypatch, call, changes, from_the=0):
    """Run a command while one host changes its answers; return the outcome."""
    module, function, options, name = call
    _clear(lab.folder)
    keypairs.begin()
    cloud = hostilehost.cloud(lab.opts)
    edge = hostilehost.Edge(cloud, name or "web", changes, from_the)
    bus, log = hostilehost.Bus(), hostilehost.Log()
    logging.getLogger().addHandler(log)
    global _written
    with monkeypatch.context() as patch:
        patch.setattr(minions, "publish", edge.publish)
        patch.setattr(minions, "collect", edge.collect)
        patch.setattr(minions, "time", edge.clock())
        patch.setattr(runners, "__jid_event__", bus, raising=False)
        _written = []
        try:
            lab.modules[module].__context__.clear()
            with redirect_stdout(io.StringIO()) as printed:
                answer = getattr(lab.modules[module], function)(**options)
        finally:
            written, _written = _written, None
            logging.getLogger().removeHandler(log)
    bus.print_func("ret", {"return": answer})
    return SimpleNamespace(
        answer=answer, edge=edge, bus=bus, log=log, written=written, printed=printed.getvalue()
    )


def shown(lab, outcome):
    """Return all output of a command that a user reads, as a table and without."""
    json.dumps(outcome.answer)
    outputter_name = outcome.bus.outputter
    tables = [outputter(outputter_name)(outcome.answer)] if outputter_name else []
    return [*outcome.bus.lines, outcome.printed, lab.nested(outcome.answer), *tables]


def _control_characters(text):
    return [character for character in text if not (character.isprintable() or character in "\n\t")]


def _texts(value):
    """Yield all texts of an answer: a text with line ends would look like another host's."""
    if isinstance(value, dict):
        # No table shows a definition, and other output indents it.
        value = {key: item for key, item in value.items() if key != "xml"}
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str):
        yield value


def _vm_of_call(args, kwarg):
    description = kwarg.get("about")
    vm_name = description.get("name") if isinstance(description, dict) else None
    return kwarg.get("vm_") or kwarg.get("name") or vm_name or (args[0] if args else None)


def check_outcome(lab, call, outcome):
    """Check all that must hold for any answers of the host."""
    function, name = call[1], call[3]
    assert outcome.log.tracebacks == [], outcome.log.tracebacks[0]
    # Each wait for a host ends.
    assert outcome.edge.now < 400
    for text in [*shown(lab, outcome), *outcome.log.said]:
        assert _control_characters(text) == [], text
    # Output of a guest keeps its lines, which are indented in a terminal.
    if function not in ("console_log", "guest_exec", "update"):
        assert [text for text in _texts(outcome.answer) if "\n" in text] == []
    _check_files(lab, outcome, name)
    _check_orders(call, outcome)
    if not {"name", "fields", "tag"} & {*call[2]}:
        _check_the_others(function, outcome.edge.cloud, outcome.answer)


def _check_files(lab, outcome, name):
    folder_of_lab = str(lab.folder)
    out = [path for path in outcome.written if not os.path.realpath(path).startswith(folder_of_lab)]
    assert out == []
    pki = {path.name for path in (lab.folder / "pki").glob("minions*/*") if path.is_file()}
    assert pki - {"h1", "h2", HOSTILE, name} == set()


def _check_orders(call, outcome):
    """Other hosts get no orders about VMs that are not the command's own."""
    function, options, name = call[1:]
    for host, fun, args, kwarg in outcome.edge.orders:
        # The first argument of a clone is its source, which is only read.
        vm_name = args[1:] if fun == "virt.clone" else args
        is_its_own = _vm_of_call(vm_name, kwarg) in (name, "own")
        # A host checks the token of a move itself; the VMs below show that nothing happened.
        is_asked = function == "settle" and fun == "virt.migrate_step"
        assert fun in HARMLESS or is_its_own or is_asked, (host, fun, args, kwarg)
    if function == "rebalance" or options == {"host": "h1"}:
        return
    cloud = outcome.edge.cloud
    for host, other_vm in (("h1", "web"), ("h2", "db"), ("h1", "away")):
        if other_vm != name:
            assert cloud.hosts[host][other_vm]["state"] == "running"
            assert cloud.where(other_vm) == [host]


def _check_the_others(function, cloud, answer):
    """The others' answers stand, or the error names the hostile host."""
    if function not in SURVEYS or ("error" in answer and HOSTILE in answer["error"]):
        return
    for host in ("h1", "h2"):
        expected = cloud.does(host, f"virt.{SURVEYS[function]}", (), {})
        if function == "list_":
            assert sum(answer[host].values(), []) == sorted(expected)
        else:
            assert answer[host] == expected


def test_answers_of_a_friendly_host_are_understood(lab, monkeypatch):
    for call in CALLS:
        outcome = play(lab, monkeypatch, call, [])

        check_outcome(lab, call, outcome)
        assert wrong_in_answer(call, outcome.answer) == [], call


def wrong_in_answer(call, answer):
    """Return the parts of an answer outside its function's shape; fake hosts leave out a lot."""
    if isinstance(answer, dict) and "error" in answer:
        return []
    module = call[0] if call[0] in ("virt_pki", "virt_image_minion") else "virt"
    shape = answershapes.RUNNERS[f"{module}.{call[1].rstrip('_')}"]
    return [line for line in answershapes.mismatches(shape, answer) if ": lacks " not in line]


@pytest.mark.slow
@pytest.mark.parametrize(
    "call", [call for call in CALLS if call[1] == "query" and call[2]], ids=str
)
def test_no_fact_about_a_vm_from_a_hostile_host_breaks_the_table(lab, monkeypatch, call):
    for at in range(25):
        for junk in ("web", None, [1], {"a": 1}, "\x1b[2Ja\nb"):
            check_outcome(lab, call, play(lab, monkeypatch, call, [("set", at, junk)]))


@sizes(quick=150, full=2000)
@pytest.mark.slow
def test_a_hostile_host_gets_an_error_line_and_the_others_answers_stand(lab, monkeypatch, size):
    @settings(
        max_examples=size,
        deadline=None,
        database=None,
        derandomize=size == 150,
        suppress_health_check=list(HealthCheck),
    )
    @given(
        st.sampled_from(CALLS),
        st.lists(CHANGE, min_size=1, max_size=3),
        st.sampled_from([0, 0, 0, 1, 1, 2, 3, 5, 8]),
    )
    def look(call, changes, from_the):
        outcome = play(lab, monkeypatch, call, changes, from_the)
        check_outcome(lab, call, outcome)

    look()
