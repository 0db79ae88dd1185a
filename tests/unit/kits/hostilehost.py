"""A host that answers the master's runner with whatever it likes, signed with its own key."""

import base64
import copy
import itertools
import json
import logging
import threading
import traceback
from pathlib import Path
from types import SimpleNamespace

import keypairs
import playedhosts
from cryptography.hazmat.primitives import hashes, serialization
from saltvirt.cluster.rpc import minions
from saltvirt.cluster.rpc.publishing import Target
from saltvirt.cluster.rpc.replies import reply_from_answer
from saltvirt.core import vmfilter
from saltvirt.core.crypto import signed
from saltvirt.core.errors import NoSuchVm, VirtError

HOSTILE = "h3"
REACHED = {
    "addresses": ["192.168.122.7"],
    "addresses_from": "lease",
    "behind_host": ["192.168.122.0/24"],
    "ssh_user": "debian",
    "login": "ssh -J h3 debian@192.168.122.7",
}
SHOWN_VM = {
    "cpu": 1,
    "mem": 512,
    "state": "running",
    "graphics": {"type": "vnc", "listen": "0.0.0.0", "port": "5900"},
    "disks": {"vda": {"file": "/srv/a.qcow2", "file format": "qcow2", "virtual size": 2**30}},
    "nics": {"ac:de:48:98:08:77": {"source": {"bridge": "br0"}, "type": "bridge"}},
}
IMAGE = {
    "source": "salt://a.qcow2",
    "format": "qcow2",
    "virtual_bytes": 2**30,
    "file_bytes": 2**20,
    "users": [],
    "os": "debian12",
    "has_minion": True,
    "has_cloud_init": False,
}
PLAN = {
    "domain_type": "kvm",
    "arch": "x86_64",
    "vcpus": 1,
    "memory_mib": 512,
    "disks": [
        {
            "name": "system",
            "target": "vda",
            "device": "disk",
            "path": "/srv/fresh_system.qcow2",
            "format": "qcow2",
            "size_mib": 1,
            "image": "/srv/own_system.qcow2",
            "made": "copy",
            "base": "/srv/own_system.qcow2",
        }
    ],
    "nics": [{"name": "eth0", "type": "bridge", "source": "br0", "model": "virtio", "mac": "52:"}],
    "seed": {"method": "nocloud", "install": None, "install_from": [], "os": "debian 12"},
    "files": ["/srv/fresh_system.qcow2"],
    "to_fetch": [],
    "start": True,
    "xml": "<domain>\n</domain>",
    "warnings": ["its disk is shareable"],
}
FIGURES = {
    "stage": "Moving",
    "percent": 5,
    "rate_bytes_s": 1,
    "remaining_bytes": 2,
    "done_bytes": 3,
    "total_bytes": 4,
    "detail": "",
}


class Cloud(playedhosts.Cloud):
    """Hosts that do all that a runner function asks for."""

    timeout_s, deploy_timeout_s, wait_s = 5, 10, 1

    def _vm(self, host, name):
        if name not in self.hosts[host]:
            raise NoSuchVm(name)
        return self.hosts[host][name]

    def _start(self, host, name):
        self._vm(host, name)["state"] = "running"

    _resume = _reset = _shutdown = _pause = _start

    def _stop(self, host, name):
        self._vm(host, name)["state"] = "shutdown"

    def _shared_files(self, host, name):
        self._vm(host, name)
        return [f"/mnt/shared/{name}_system.qcow2"]

    def _shared_disks(self, _host, names):
        return {n: [{"path": f"/mnt/shared/{n}_a.raw", "is_open": False}] for n in names}

    def _file_users(self, _host, paths, uuid=None):
        return {path: {"used_by": [], "doubts": []} for path in paths}

    def _purge(self, host, name, asked, **_kwarg):
        self._vm(host, name)
        # No host removes a file that others see and that they were not asked about.
        assert f"/mnt/shared/{name}_system.qcow2" in asked["free"]
        del self.hosts[host][name]

    def _init(self, host, name, *_args, **_kwarg):
        self.put(name, host)
        return {"warnings": ["its image has no SSH server"]}

    def _clone(self, host, source, name, dry_run=False, **_kwarg):
        self._vm(host, source)
        if dry_run:
            return {**PLAN, "source": source, "name": name}
        self.put(name, host)
        return {"warnings": ["its disk is shareable"]}

    def _setmem(self, host, name, _memory, _config=False):
        self._vm(host, name)
        return True

    def _hold(self, host, name, _state):
        self._vm(host, name)
        return True

    def _update(self, host, name, **_changes):
        self._vm(host, name)
        return {"definition": True, "disk": {"attached": ["<disk/>"]}}

    def _disk_add(self, host, name, *_disk, **_keys):
        self._vm(host, name)
        return {"outcome": "disk vdb added", "device": "vdb", "restart": False, "diff": ["+ <a/>"]}

    def _disk_remove(self, host, name, *_disk, replies, **_keys):
        self._vm(host, name)
        return {"outcome": "disk vdb removed", "device": "vdb", "restart": False, "trash": None}

    def _move_disk(self, host, name, *_disk, replies, report, **_keys):
        self._vm(host, name)
        return {"outcome": "disk vda moved", "device": "vda", "restart": False, "file": "/a"}

    def _eject(self, host, name, *_drive, **_keys):
        self._vm(host, name)
        return {"outcome": "drive sda has no medium already", "device": "sda", "restart": False}

    def _undefine(self, host, name, *_flags):
        self._vm(host, name)
        del self.hosts[host][name]
        return True

    def _snapshot(self, host, name, *_how):
        self._vm(host, name)
        return {"name": "s1"}

    def _list_snapshots(self, host, name):
        self._vm(host, name)
        return {name: [{"name": "s1", "created": "now", "running": True, "current": True}]}

    def _delete_snapshots(self, host, name, *_names, replies, **_how):
        self._vm(host, name)
        return {"available": {name: "N/A"}, "deleted": {}}

    def _revert_snapshot(self, host, name, _vm_snapshot, replies, **_how):
        self._vm(host, name)
        return {"reverted": "s1", "deleted": "N/A"}

    def _get_disks(self, host, name):
        self._vm(host, name)
        return {"vda": {"file": "/srv/a.qcow2", "virtual size": 5}}

    def _get_macs(self, host, name):
        self._vm(host, name)
        return ["52:54:00:00:00:01"]

    def _vm_netstats(self, host, name):
        return {name: {"rx_bytes": 5, "tx_bytes": 7}}

    def _guest_info(self, host, name):
        self._vm(host, name)
        return {"agent": "7.2", "hostname": name, "os": {"id": "debian"}, "unavailable": {}}

    def _guest_exec(self, host, name, *_command, **_how):
        self._vm(host, name)
        return {"exit_code": 0, "signal": None, "stdout": "a\nb", "stderr": "", "truncated": False}

    def _console_log(self, _host, name, lines):
        return f"{name} login:\n" * lines

    def _vm_info(self, host, name):
        return {name: {**SHOWN_VM, **REACHED, "state": self._vm(host, name)["state"]}}

    def _vm_state(self, host):
        return {name: one["state"] for name, one in self.hosts[host].items()}

    def _full_info(self, host):
        node = {"freecpu": 1, "freemem": 1.0, "node_info": {"cpus": 1, "phymemory": 1}}
        return {**node, "vm_info": {name: SHOWN_VM for name in self.hosts[host]}}

    def _host_info(self, host, moving=None):
        return {
            **super()._host_info(host, moving),
            "profiles": {"disk": {"default": {"size_mib": 1}}, "nic": {"default": {}}},
        }

    def _vms(self, host, name=(), state=(), tag=(), fields=()):
        look = vmfilter.from_call(list(name), list(state), list(tag), list(fields))
        there = {
            one: look.shown({**SHOWN_VM, "state": vm["state"]})
            for one, vm in self.hosts[host].items()
            if look.takes(one, vm["state"], {"hold"})
        }
        return {**self._full_info(host), "vm_info": there, "names": sorted(self.hosts[host])}

    def _vm_rows(self, host, name=(), state=(), tag=()):
        look = vmfilter.from_call(list(name), list(state), list(tag))
        return {
            one: {"state": vm["state"], "cpu": 1, "mem_mib": 64, "disk_mib": 1024, "created": 1}
            for one, vm in self.hosts[host].items()
            if look.takes(one, vm["state"], {"hold"})
        }

    def _images(self, host):
        return {f"digest{host}": IMAGE}

    def _image_pull(self, _host, _image, **_kwarg):
        return "digest"

    def _image_prune(self, _host, digests, dry_run=False, step=None):
        begun = list(digests) if step == "begin" else []
        return {
            "removed": {} if step in ("begin", "look") else dict.fromkeys(digests, 7),
            "begun": begun,
        }

    def _image_build(self, _host, _source, name, **_kwarg):
        return {"path": f"/{name}", "digest": "d", "os": None, "has_minion": False}

    def _authorized(self, _host, **_kwarg):
        return True

    def _refuse_order(self, _host, _order_id):
        return minions.REFUSED

    def _does_other(self, fun):
        if fun == "saltutil.find_job":
            return {}
        return {"virt_|-keys_|-keys_|-keys": {"comment": "renewed", "result": True}}

    def does(self, host, fun, arg, kwarg):
        """Return what a host that means well says."""
        if not fun.startswith("virt."):
            return self._does_other(fun)
        return getattr(self, f"_{fun.removeprefix('virt.')}")(host, *arg, **kwarg)


def cloud(opts):
    """Return three hosts with a VM each; the last is the hostile one."""
    made = Cloud(["h1", "h2", HOSTILE])
    for host, name in (("h1", "web"), ("h2", "db"), (HOSTILE, "own")):
        made.put(name, host)
    made.notes[HOSTILE] = {"web": ["h1"]}
    made.proved(opts, HOSTILE, away=["h1"])
    made.put("away", "h1")
    token = {"token": "t1", "phase": "ready"}
    made.arrivals[HOSTILE, "coming"] = {**token, "source": "h1"}
    made.departures[HOSTILE, "own"] = {
        "token": "t2",
        "phase": "handing",
        "target": "h2",
        "autostart": False,
        "was": True,
    }
    return made


# What it does to an answer.


def _places(value):
    """Return ``[(container, key)]`` of all that is in a value, itself as the first."""
    whole = {"": value}
    out, waiting = [], [(whole, "")]
    while waiting:
        holder, key = waiting.pop(0)
        out.append((holder, key))
        inner = holder[key]
        if isinstance(inner, dict):
            waiting += [(inner, one) for one in inner]
        elif isinstance(inner, list):
            waiting += [(inner, number) for number in range(len(inner))]
    return whole, out


def _changed(value, kind, at, junk):
    """Return a value with one place of it changed."""
    whole, places = _places(value)
    holder, key = places[at % len(places)]
    if kind == "drop":
        del holder[key]
    elif kind == "name" and isinstance(holder[key], dict):
        inner = holder[key]
        like = next(iter(inner.values()), junk)
        inner[str(junk)[:5000]] = copy.deepcopy(like)
    else:
        holder[key] = junk
    return whole.get("")


def mutated(said, changes):
    """Return ``(text, raw)``: what is signed, or what is sent in place of anything signed."""
    for kind, at, junk in changes:
        if kind == "raw":
            return None, junk
        if kind == "text":
            return str(junk), None
        if kind == "field":
            field = ("why", "retcode", "fun", "minion", "about", "value")[at % 6]
            said = {**said, field: junk}
        else:
            value = json.loads(json.dumps(said["value"]))
            said = {**said, "value": _changed(value, kind, at, junk)}
    return json.dumps(said), None


class Edge:
    """Stands for Salt's client: orders go to hosts, and what they say comes back."""

    def __init__(self, cloud, name, changes, from_the):
        # Its events are about that VM or image; the first answers are as they should be.
        self.cloud, self.name = cloud, name
        self.changes, self.from_the = changes, from_the
        self.key = serialization.load_pem_private_key(
            keypairs.named(HOSTILE)[1].encode(), password=None, unsafe_skip_rsa_key_validation=True
        )
        self.jobs, self.numbers = {}, itertools.count(1)
        self.lock = threading.RLock()
        # What is told to those that mean well.
        self.told, self.heard, self.now, self.said = [], 0, 0.0, set()

    def publish(self, _local, targets, _fun, arg, _kwarg, _timeout_s, **_kept):
        """Stand for ``minions.publish``."""
        with self.lock:
            jid, what = str(next(self.numbers)), arg[0]
            self.jobs[jid] = json.loads(what) if isinstance(what, str) else what
            # So few are listed, and in one list.
            return jid, set(targets.parts[0] if isinstance(targets, Target) else targets)

    def collect(self, _local, hearing, deadline, watch=None):
        """Stand for ``minions.collect``."""
        with self.lock:
            for host in sorted(hearing.hosts - set(hearing.replies)):
                self._hear(host, hearing, watch)
            if hearing.pending():
                self.now = max(self.now, deadline) + 0.01

    def _hear(self, host, hearing, watch):
        what = self.jobs[hearing.jid]
        fun, arg, kwarg = what["fun"], what["arg"], what["kwarg"]
        said = {"minion": host, "about": hearing.jid, "fun": fun, "retcode": 0, "why": None}
        try:
            said["value"] = json.loads(json.dumps(self.cloud.does(host, fun, arg, kwarg)))
        except VirtError as error:
            said |= {"value": {"error": str(error)}, "why": str(error), "retcode": 1}
        except (KeyError, TypeError) as error:
            # What it says of VMs that it does not have is not in the model.
            assert host == HOSTILE, (host, fun, arg, kwarg)
            said |= {"value": {}, "why": str(error)}
        if host != HOSTILE:
            if "id" in what:
                self.told.append((host, fun, arg, kwarg))
            self.said.add((host, fun))
            hearing.replies[host] = reply_from_answer(signed.SignedAnswer(**said))
            return
        self.heard += 1
        changes = self.changes if self.heard > self.from_the else []
        if watch is not None:
            tag = f"salt/{fun.replace('.', '/')}"
            event = {**said, "about": tag, "fun": "", "value": {**FIGURES, "name": self.name}}
            watch(tag, {"id": host, "data": self._packed(event, changes)})
        hearing.accept({"id": host, "return": self._packed(said, changes)})

    def _packed(self, said, changes):
        text, raw = mutated(said, changes)
        if text is None:
            return raw
        signature = self.key.sign(
            text.encode("utf-8", "surrogatepass"), signed._PSS, hashes.SHA256()
        )
        return {"said": text, "signature": base64.b64encode(signature).decode()}

    def clock(self):
        """Return what stands for the module ``time`` where hosts are waited for."""
        return SimpleNamespace(monotonic=lambda: self.now, sleep=lambda _s: None)


# What stands for the master's own parts.


class Bus:
    """What a user of salt-run has read of a job."""

    base, event = "salt/run/1", None

    def __init__(self):
        self.lines, self.outputter = [], None

    def fire_event(self, message, _tag):
        """Show one line of progress."""
        self.lines.append(message["message"])

    def print_func(self, _suffix, event):
        """See by which table the end is shown."""
        self.outputter = event.get("outputter")


class Log(logging.Handler):
    """What is logged."""

    def __init__(self):
        super().__init__()
        self.said, self.tracebacks = [], []

    def emit(self, record):
        """Take one line."""
        self.said.append(record.getMessage())
        if record.exc_info:
            self.tracebacks.append("".join(traceback.format_exception(*record.exc_info)))


class Keys:
    """The keys of minions as files: Salt's own store makes a loader for each look."""

    def __init__(self, opts):
        self._folder = Path(opts["pki_dir"]) / "minions"

    def read(self, name):
        """Return the state and the key of a minion."""
        path = self._folder / name
        return ("accepted", path.read_text()) if path.exists() else (None, None)

    def accepted(self):
        """Return the ids of all that are accepted."""
        return sorted(path.name for path in self._folder.iterdir())

    def accept(self, name, public):
        """Accept a key."""
        (self._folder / name).write_text(public)

    def delete(self, name):
        """Delete a key."""
        (self._folder / name).unlink(missing_ok=True)

    discard = delete


class Local:
    """A client of Salt's, as far as nobody but Edge answers."""

    event = None

    def pub(self, *_args, **_kwargs):
        """End a job that nobody waits for."""
