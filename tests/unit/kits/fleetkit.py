"""Hosts that are folders: their VMs outlive the process that asked them."""

import contextlib
import json
import multiprocessing
import os
import signal
import threading
from types import SimpleNamespace

import keypairs
import told
from saltvirt.cluster import minionkeys, orders
from saltvirt.cluster.cloud import Cloud
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import minions
from saltvirt.core.errors import NameTaken, NoSuchVm, StorageError
from saltvirt.core.journal import records
from saltvirt.core.options.config import HostSettings, MasterSettings
from saltvirt.core.salt import answering, compat
from saltvirt.vm.create.master import deploy, hostbuild, vmrequest
from saltvirt.vm.purge.master import purging, undoing
from test_generation import said_of

SETTINGS = MasterSettings(timeout_s=1, hypervisors=["hyper*"])


def _with(vms, key):
    """Return ``{name: value}`` of the VMs that have a value for a key."""
    return {name: vm[key] for name, vm in vms.items() if vm.get(key)}


class Hosts:
    """
    Stand for minions of hypervisors, which no unit test can have.

    A VM is a file that has its state; a host with a file ``.silent`` gives no answer.
    """

    def __init__(self, opts, folder, names):
        self.opts, self.folder, self.sent = opts, folder, []
        self.queued, self.queues = [], None
        # Whether hosts record a build's files if the master may take it back.
        self.notes_made = True
        # Whether hosts report the files that a purge removes, and keep them for virt.undo.
        self.has_trash = False
        self.profiles = {"default": {"size_mib": 1}}
        # The release of Debian of each host that has another one than 13.
        self.releases = {}
        self.does = {
            "virt.init": self.build,
            "virt.purge": self.remove,
            "virt.undo": self.bring_back,
        }
        for name in names:
            (folder / name).mkdir()
            minionkeys.accept(opts, name, keypairs.named("a host")[0])

    def names(self, *_args):
        """Stand for ``inventory.every``."""
        return sorted(path.name for path in self.folder.iterdir())

    def put(self, host, name, state="running", **more):
        """Put a VM on a host."""
        # A kill leaves the complete file or none, and no reader sees a part.
        part = self.folder / host / f".{name}.{threading.get_ident()}"
        part.write_text(json.dumps({"state": state, **more}))
        part.rename(self.folder / host / name)

    def silence(self, host, is_silent=True):
        """Let a host give no answers, or answer again."""
        silent = self.folder / host / ".silent"
        silent.touch() if is_silent else silent.unlink()

    def where(self, name):
        """Return the hosts that have a VM."""
        return [host for host in self.names() if (self.folder / host / name).exists()]

    def build(self, host, name, *_args, report, **_kwarg):
        """Make a VM, as ``virt.init`` of a host does."""
        noted = {"notes_made": True} if self.notes_made and report.get("undoable") else {}
        self.put(host, name, uuid=report["uuid"], **noted)

    def remove(self, host, name, uuid=None, only_made=False, report=False, test=False):
        """Remove a VM, as ``virt.purge`` of a host does."""
        if host not in self.where(name):
            raise NoSuchVm(name)
        if uuid not in (None, self._vms(host)[name].get("uuid")):
            raise NameTaken(f"VM {name!r} is another one here")
        if not report and not test:
            (self.folder / host / name).unlink()
            return True
        if not test:
            (self.folder / host / name).rename(self.folder / host / f".trash-{name}")
        entry = {"trashed": [f"/srv/{name}.qcow2"], "entry": f"{name}-1", "until": "2026-12-05"}
        return {"removed": [], "left": {}, "lost": [], **entry, "can_undo": True}

    def bring_back(self, host, name, uuid, test=False):
        """Bring a VM back, as ``virt.undo`` of a host does."""
        trashed = self.folder / host / f".trash-{name}"
        if trashed.exists() and not test:
            assert json.loads(trashed.read_text())["uuid"] == uuid
            trashed.rename(self.folder / host / name)
        elif not trashed.exists() and host not in self.where(name):
            raise StorageError(f"the trash of this host has no purged VM called {name!r}")
        return {"uuid": uuid, "files": [f"/srv/{name}.qcow2"], "autostart": True}

    def _vms(self, host):
        out = {}
        for path in (self.folder / host).iterdir():
            # Another thread may remove the file at the same time.
            with contextlib.suppress(FileNotFoundError):
                if not path.name.startswith("."):
                    vm = json.loads(path.read_text())
                    out[path.name] = {"building": False, "unfinished": False, **vm}
        return out

    def is_queueing(self, fun):
        """Let orders of a function wait on busy hosts; they get no answer."""
        self.queues = fun

    def late(self):
        """Let the hosts carry out their queued orders."""
        self.queues, queued = None, self.queued
        for host, fun, arg, kwarg, order_id in queued:
            with answering.begin_order(self.settings(host), order_id):
                self.does[fun](host, *arg, **kwarg)

    def settings(self, host):
        """Return the options of a host."""
        return HostSettings(state_dir=str(self.folder / host / ".state"))

    def _answer(self, host, fun, arg, kwarg):
        vms = self._vms(host)
        if fun == "virt.refuse_order":
            return answering.refuse_order(self.settings(host), *arg)
        if fun == "virt.presence":
            none = {"state": None, "building": False, "unfinished": False}
            return {**vms.get(arg[0], none), **({"reports": True} if self.has_trash else {})}
        if fun == "virt.shared_files":
            return []
        if fun == "virt.full_info":
            shown = {"cpu": 1, "mem": 1, "graphics": {}, "disks": {}, "nics": {}}
            node = {"freecpu": 1, "freemem": 1.0, "node_info": {"cpus": 1, "phymemory": 1}}
            return {**node, "vm_info": {n: {**shown, **v} for n, v in vms.items()}}
        if fun == "virt.placement_facts":
            return told.placement_facts(host, self._of_release(host, vms), **kwarg)
        return self._of_release(host, vms)

    def _of_release(self, host, vms):
        if host not in self.releases:
            return self._info(vms)
        release = said_of(self.releases[host])
        return {**self._info(vms), **{key: release[key] for key in ("machines", "versions")}}

    def _info(self, vms):
        sized = {"vcpus": 1, "memory_mib": 1, "affinity": [], "anti_affinity": []}
        running_vms = {n: v for n, v in vms.items() if v["state"] and "moved_to" not in v}
        return {
            **said_of(13),
            "profiles": {"disk": self.profiles, "nic": {"default": {}}},
            "vms": {
                n: {
                    **sized,
                    "state": v["state"],
                    **({"uuid": v["uuid"]} if "uuid" in v else {}),
                }
                for n, v in running_vms.items()
            },
            "kept": _with(vms, "moved_to"),
            "building": [*_with(vms, "building")],
            "unfinished": [*_with(vms, "unfinished")],
            "unreadable": _with(vms, "unreadable"),
        }

    def is_silent(self, host):
        """Return whether a host gives no answer."""
        return (self.folder / host / ".silent").exists()

    def ask(self, _cloud, targets, fun, arg=(), kwarg=None, **_options):
        """Stand for ``minions.ask``."""
        return {
            host: minions.Reply(minion=host, is_missing=True)
            if self.is_silent(host)
            else minions.Reply(minion=host, value=self._answer(host, fun, arg, kwarg or {}))
            for host in targets
        }

    def order(self, _cloud, host, fun, arg, kwarg, order_id=None, **_options):
        """Stand for ``minions.order``."""
        self.sent.append((host, fun, kwarg))
        silent = minions.Reply(minion=host, is_missing=True, error=f"{host} does not answer")
        if self.is_silent(host):
            return silent
        if fun == self.queues:
            self.queued.append((host, fun, arg, kwarg or {}, order_id))
            return silent
        try:
            value = self.does[fun](host, *arg, **(kwarg or {}))
        except (hostbuild.VirtError, ValueError) as error:
            kind = type(error).__name__
            return minions.Reply(minion=host, value={}, error=str(error), kind=kind)
        if self.is_silent(host):
            return silent
        return minions.Reply(minion=host, value=True if value is None else value)


def terms(*, wait=False, **arguments):
    """Return the terms of a call with these arguments."""
    keys = ("host", "where", "placement", "spread_over", "headroom", "force", "wait_s")
    terms_of_call = {key: arguments[key] for key in keys if key in arguments}
    return vmrequest.parse_terms(SETTINGS, wait=wait, **terms_of_call)


def request(name="web", *, cpu=1, mem=1, wait=False, **arguments):
    """Return the request of a call, which by default waits for no minion."""
    call_terms = terms(wait=wait, **arguments)
    # A machine type is an argument of the call, and a default of its terms.
    options = {
        key: value
        for key, value in arguments.items()
        if key == "machine" or not (hasattr(call_terms, key) or hasattr(call_terms.policy, key))
    }
    return vmrequest.parse(name, cpu, mem, options, call_terms)


def cloud(monkeypatch, opts, tmp_path, count=3):
    """Return a cloud of hosts with ``init`` and ``purge``, as a user calls them on its master."""
    folder = tmp_path / "hosts"
    folder.mkdir()
    hosts = Hosts(opts, folder, [f"hyper{n}" for n in range(1, count + 1)])
    monkeypatch.setattr(inventory, "all_hosts", hosts.names)
    monkeypatch.setattr(minions, "ask", hosts.ask)
    monkeypatch.setattr(minions, "order", hosts.order)
    monkeypatch.setattr(hostbuild, "_UNDOING_S", (0, 0))
    # Salt's own deletion would notify the running master.
    monkeypatch.setattr(compat.KeyStore, "delete", compat.KeyStore.discard)

    def progress(_stage, **_figures):
        pass  # no test reads the progress

    opts["virt"] = {"hypervisors": SETTINGS.hypervisors}
    master = Cloud(opts=opts, settings=SETTINGS, progress=progress)

    def init(name="web", *, host=None, force=False, image="salt://a.qcow2"):
        options = {"image": image} if image else {}
        return deploy.deploy(master, request(name, host=host, force=force, **options))

    def dry_run(name="web", **options):
        return deploy.dry_run(master, request(name, wait=True, **options))

    def remove(name="web", delete_key=True):
        return purging.purge(master, name, delete_key)

    def bring_back(name="web", **options):
        return undoing.undo(master, name, **options)

    return SimpleNamespace(
        hosts=hosts,
        init=init,
        dry_run=dry_run,
        purge=remove,
        undo=bring_back,
        opts=opts,
        master=master,
    )


def killed(function, *args, **kwargs):
    """Run a function in a process that is killed in the middle of it."""
    process = multiprocessing.get_context("fork").Process(target=function, args=args, kwargs=kwargs)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def die(*_args, **_kwarg):
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def left(cloud, name="web"):
    """Return the phase of a VM's order, None if there is none."""
    record = records.read_record(orders.folder(cloud.opts), "order", name)
    return record and record.phase


def is_tidy(cloud):
    """Return whether no order has left anything but last-seen names."""
    folder = orders.folder(cloud.opts) / "order"
    return not folder.exists() or list(folder.iterdir()) == []


def key(cloud, name="web"):
    """Return the accepted key of a minion."""
    return minionkeys.read_accepted(cloud.opts, name)
