"""A host that sends the master's runner hostile answers, signed with its own key."""

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
    """Hosts that carry out all orders of runner functions."""

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

    def _purge(self, host, name, replies, **_kwarg):
        self._vm(host, name)
        # No host removes a file that others see before they were asked about it.
        assert f"/mnt/shared/{name}_system.qcow2" in replies["free"]
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
        return {name: vm["state"] for name, vm in self.hosts[host].items()}

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
        vm_info = {
            vm_name: look.shown({**SHOWN_VM, "state": vm["state"]})
            for vm_name, vm in self.hosts[host].items()
            if look.takes(vm_name, vm["state"], {"hold"})
        }
        return {**self._full_info(host), "vm_info": vm_info, "names": sorted(self.hosts[host])}

    def _vm_rows(self, host, name=(), state=(), tag=()):
        look = vmfilter.from_call(list(name), list(state), list(tag))
        return {
            vm_name: {"state": vm["state"], "cpu": 1, "mem_mib": 64, "disk_mib": 1024, "created": 1}
            for vm_name, vm in self.hosts[host].items()
            if look.takes(vm_name, vm["state"], {"hold"})
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
        """Return the answer of a friendly host."""
        if not fun.startswith("virt."):
            return self._does_other(fun)
        return getattr(self, f"_{fun.removeprefix('virt.')}")(host, *arg, **kwarg)


def cloud(opts):
    """Return three hosts with a VM each; the last one is hostile."""
    hostile_cloud = Cloud(["h1", "h2", HOSTILE])
    for host, name in (("h1", "web"), ("h2", "db"), (HOSTILE, "own")):
        hostile_cloud.put(name, host)
    hostile_cloud.notes[HOSTILE] = {"web": ["h1"]}
    hostile_cloud.proved(opts, HOSTILE, away=["h1"])
    hostile_cloud.put("away", "h1")
    token = {"token": "t1", "phase": "ready"}
    hostile_cloud.arrivals[HOSTILE, "coming"] = {**token, "source": "h1"}
    hostile_cloud.departures[HOSTILE, "own"] = {
        "token": "t2",
        "phase": "handing",
        "target": "h2",
        "autostart": False,
        "was": True,
    }
    return hostile_cloud


# How it changes an answer.


def _places(value):
    """Return ``[(container, key)]`` of a value and all values in it."""
    container = {"": value}
    out, waiting = [], [(container, "")]
    while waiting:
        holder, key = waiting.pop(0)
        out.append((holder, key))
        inner = holder[key]
        if isinstance(inner, dict):
            waiting += [(inner, child_key) for child_key in inner]
        elif isinstance(inner, list):
            waiting += [(inner, number) for number in range(len(inner))]
    return container, out


def _changed(value, kind, at, junk):
    """Return a value with one value in it changed."""
    container, places = _places(value)
    holder, key = places[at % len(places)]
    if kind == "drop":
        del holder[key]
    elif kind == "name" and isinstance(holder[key], dict):
        inner = holder[key]
        like = next(iter(inner.values()), junk)
        inner[str(junk)[:5000]] = copy.deepcopy(like)
    else:
        holder[key] = junk
    return container.get("")


def mutated(answer, changes):
    """Return ``(text, raw)``: a text to sign, or data to send in place of a signed answer."""
    for kind, at, junk in changes:
        if kind == "raw":
            return None, junk
        if kind == "text":
            return str(junk), None
        if kind == "field":
            field = ("why", "retcode", "fun", "minion", "about", "value")[at % 6]
            answer = {**answer, field: junk}
        else:
            value = json.loads(json.dumps(answer["value"]))
            answer = {**answer, "value": _changed(value, kind, at, junk)}
    return json.dumps(answer), None


class Edge:
    """Stand for Salt's client: orders go to hosts, and their answers come back."""

    def __init__(self, cloud, name, changes, from_the):
        # Events are about this VM or image; the first ``from_the`` answers are unchanged.
        self.cloud, self.name = cloud, name
        self.changes, self.from_the = changes, from_the
        self.key = serialization.load_pem_private_key(
            keypairs.named(HOSTILE)[1].encode(), password=None, unsafe_skip_rsa_key_validation=True
        )
        self.jobs, self.numbers = {}, itertools.count(1)
        self.lock = threading.RLock()
        # orders: those to the friendly hosts.
        self.orders, self.answer_count, self.now, self.said = [], 0, 0.0, set()

    def publish(self, _local, targets, _fun, arg, _kwarg, _timeout_s, **_options):
        """Stand for ``minions.publish``."""
        with self.lock:
            jid, order = str(next(self.numbers)), arg[0]
            self.jobs[jid] = json.loads(order) if isinstance(order, str) else order
            # A target for so few hosts is one list.
            return jid, set(targets.parts[0] if isinstance(targets, Target) else targets)

    def collect(self, _local, hearing, deadline, watch=None):
        """Stand for ``minions.collect``."""
        with self.lock:
            for host in sorted(hearing.hosts - set(hearing.replies)):
                self._hear(host, hearing, watch)
            if hearing.pending():
                self.now = max(self.now, deadline) + 0.01

    def _hear(self, host, hearing, watch):
        order = self.jobs[hearing.jid]
        fun, arg, kwarg = order["fun"], order["arg"], order["kwarg"]
        answer = {"minion": host, "about": hearing.jid, "fun": fun, "retcode": 0, "why": None}
        try:
            answer["value"] = json.loads(json.dumps(self.cloud.does(host, fun, arg, kwarg)))
        except VirtError as error:
            answer |= {"value": {"error": str(error)}, "why": str(error), "retcode": 1}
        except (KeyError, TypeError) as error:
            # The model has no answers about VMs that the hostile host does not have.
            assert host == HOSTILE, (host, fun, arg, kwarg)
            answer |= {"value": {}, "why": str(error)}
        if host != HOSTILE:
            if "id" in order:
                self.orders.append((host, fun, arg, kwarg))
            self.said.add((host, fun))
            hearing.replies[host] = reply_from_answer(signed.SignedAnswer(**answer))
            return
        self.answer_count += 1
        changes = self.changes if self.answer_count > self.from_the else []
        if watch is not None:
            tag = f"salt/{fun.replace('.', '/')}"
            event = {**answer, "about": tag, "fun": "", "value": {**FIGURES, "name": self.name}}
            watch(tag, {"id": host, "data": self._packed(event, changes)})
        hearing.accept({"id": host, "return": self._packed(answer, changes)})

    def _packed(self, answer, changes):
        text, raw = mutated(answer, changes)
        if text is None:
            return raw
        signature = self.key.sign(
            text.encode("utf-8", "surrogatepass"), signed._PSS, hashes.SHA256()
        )
        return {"said": text, "signature": base64.b64encode(signature).decode()}

    def clock(self):
        """Return the fake module ``time`` for waits for hosts."""
        return SimpleNamespace(monotonic=lambda: self.now, sleep=lambda _s: None)


# Fakes of the master's own parts.


class Bus:
    """The output of a job that a user of salt-run has read."""

    base, event = "salt/run/1", None

    def __init__(self):
        self.lines, self.outputter = [], None

    def fire_event(self, message, _tag):
        """Record one line of progress."""
        self.lines.append(message["message"])

    def print_func(self, _suffix, event):
        """Record the outputter of the answer."""
        self.outputter = event.get("outputter")


class Log(logging.Handler):
    """The lines of the log."""

    def __init__(self):
        super().__init__()
        self.said, self.tracebacks = [], []

    def emit(self, record):
        """Record one line."""
        self.said.append(record.getMessage())
        if record.exc_info:
            self.tracebacks.append("".join(traceback.format_exception(*record.exc_info)))


class Keys:
    """The keys of minions as files: Salt's own store would create a loader for each read."""

    def __init__(self, opts):
        self._folder = Path(opts["pki_dir"]) / "minions"

    def read(self, name):
        """Return the state and the key of a minion."""
        path = self._folder / name
        return ("accepted", path.read_text()) if path.exists() else (None, None)

    def accepted(self):
        """Return the ids of all accepted minions."""
        return sorted(path.name for path in self._folder.iterdir())

    def accept(self, name, public):
        """Accept a key."""
        (self._folder / name).write_text(public)

    def delete(self, name):
        """Delete a key."""
        (self._folder / name).unlink(missing_ok=True)

    discard = delete


class Local:
    """A client of Salt for calls that ``Edge`` does not answer."""

    event = None

    def pub(self, *_args, **_kwargs):
        """End a job without a waiting caller."""
