"""Hosts that run the real parts of the protocol, with a small model of each effect."""

from dataclasses import replace

import told
from saltvirt.cluster.inventory import inventory
from saltvirt.cluster.rpc import hostcommands, minions
from saltvirt.core import wire
from saltvirt.core.errors import FunctionMissing, NoSuchVm, VirtError, VmIncomplete
from saltvirt.core.protocol import effects as parts
from saltvirt.core.protocol import moveprotocol
from saltvirt.migration.master import moveexecutor, notesignatures
from test_generation import said_of

# The default options of an evacuation.
HOW = {"max_parallel": 2, "with_stopped": True, "wait_s": 6}
_COMING = ("preparing", "ready")
_IN_HOST_INFO = ("state", "affinity", "anti_affinity")
SILENT = "{0} does not answer; see: salt {0} test.ping"


class _Side:
    """The record of one purpose on one host, and the effects that write it."""

    def __init__(self, cloud, host, name, records):
        self.cloud, self.host, self.name, self.records = cloud, host, name, records
        self.given, self.warnings = {}, []

    @property
    def there(self):
        record = self.records.get((self.host, self.name))
        return record and moveprotocol.MoveRecord(token=record["token"], phase=record["phase"])

    @property
    def record(self):
        return self.records[self.host, self.name]

    @property
    def vms(self):
        return self.cloud.hosts[self.host]

    def enter(self, phase):
        self.record["phase"] = phase

    def end(self):
        del self.records[self.host, self.name]

    def remove(self):
        pass  # there are no files

    def do(self, part):
        try:
            return parts.run(part, self)
        except moveprotocol.OutOfTurn as error:
            raise VirtError(f"VM {self.name!r} cannot be moved: {error}") from error

    def refuse_gone(self):
        if self.name not in self.vms and (self.host, self.name) not in self.cloud.away:
            raise VirtError("its definition is removed already")

    def keep_for(self, host):
        self.cloud.kept[self.host, self.name] = host
        self.warnings.append("its files are left there: /a")


class _Source(_Side):
    """The effects on the source."""

    def begin(self, token, phase):
        about = self.vms[self.name]
        self.records[self.host, self.name] = {
            "token": token,
            "phase": phase,
            "target": self.given["target"],
            "autostart": about["autostart"],
            "was": about["state"] == "running",
        }

    def bury(self, token):
        self.cloud.buried.add((self.host, token))

    def unbury(self, token):
        self.cloud.buried.discard((self.host, token))

    def push(self):
        pass

    def hold(self):
        if self.name not in self.vms:
            raise NoSuchVm(self.name)
        self.enter(moveprotocol.HANDING)

    def autostart_off(self):
        self.vms[self.name]["autostart"] = False

    def migrate(self):
        target = self.record["target"]
        # A definition of the stopped VM stays here.
        self.cloud.away[self.host, self.name] = about = self.vms.pop(self.name)
        if target not in self.cloud.swallows:
            self.cloud.hosts[target][self.name] = dict(about)

    def autostart_on(self):
        for about in (self.vms.get(self.name), self.cloud.away.get((self.host, self.name))):
            if about:
                about["autostart"] = self.record["autostart"]

    def enter(self, phase):
        super().enter(phase)
        if phase == moveprotocol.CANCELLED and (self.host, self.name) in self.cloud.away:
            self.vms[self.name] = self.cloud.away.pop((self.host, self.name))

    def stays(self):
        return self.record["was"] and self.name in self.vms

    def is_handed(self):
        is_away = (self.host, self.name) in self.cloud.away
        return self.record["was"] and is_away and self.record["target"] not in self.cloud.swallows

    def look(self):
        if self.name not in self.cloud.hosts[self.record["target"]]:
            raise VirtError("it is not defined there")

    def define_there(self):
        about = self.cloud.away[self.host, self.name]
        self.cloud.hosts[self.record["target"]][self.name] = dict(about)

    def undefine(self):
        self.cloud.away.pop((self.host, self.name), None)


class _Target(_Side):
    """The effects on the target."""

    def check(self):
        reasons = self.cloud.refuses.get(self.host, {}).get(self.name)
        if reasons:
            raise VirtError(reasons[0])

    def begin(self, token, phase):
        self.records[self.host, self.name] = {"token": token, "phase": phase}

    def make(self):
        return False

    def verify(self):
        if self.name not in self.vms:
            raise VirtError(f"VM {self.name!r} is not defined here")

    def autostart_on(self):
        if not self.given.get("autostart"):
            return
        if self.host in self.cloud.no_autostart:
            self.warnings.append("it does not start with its new host: no")
        else:
            self.vms[self.name]["autostart"] = True

    def refuse_running(self):
        if self.vms.get(self.name, {}).get("state") == "running":
            raise VirtError("it runs here, so it is not given back")

    def undefine(self):
        self.refuse_running()
        self.vms.pop(self.name, None)


class Cloud:
    """
    Hosts that answer as real ones do; a test sets which calls get no answer, or a refusal.

    silent
        A host, ``(host, function)``, or ``(host, function, "the answer")``: this one runs, and its
        answer is lost. For virt.migrate_step the function is ``virt.migrate_step cancel``.
    before, after
        ``{(host, function): a function to call, or an error to raise, before or after it}``.
    swallows, no_autostart
        Hosts that lose an arriving VM, and hosts on which autostart cannot be set.
    """

    weights, timeout_s, deploy_timeout_s, hypervisors = {}, 1, 1, ["h[0-9]*", "hyper[0-9]*"]

    def __init__(self, names):
        self.hosts = {name: {} for name in names}
        self.notes = {name: {} for name in names}
        self.silent, self.refuses, self.asked = set(), {}, []
        self.building, self.before, self.after = {}, {}, {}
        self.unfinished, self.unreadable, self.not_loaded = {}, {}, {}
        self.departures, self.arrivals, self.buried, self.away = {}, {}, set(), {}
        self.swallows, self.no_autostart, self.live = set(), set(), set()
        self.kept, self.tags = {}, {}

    def put(self, name, host, **about):
        """Put a VM on a host."""
        about = {"autostart": False, "uuid": f"uuid of {name}", **about}
        self.hosts[host][name] = {**told.ABOUT, "name": name, **about}

    def where(self, name):
        """Return the hosts that have a VM."""
        return [host for host, vms in self.hosts.items() if name in vms]

    def proved(self, opts, host, **vms):
        """Put evacuation notes ``name=hosts`` with this master's signature on a host."""
        for name, at in vms.items():
            note = notesignatures.note(opts, host, name, f"uuid of {name}", at)
            self.notes[host] = {**self.notes[host], name: wire.plain(note)}

    def noted(self, host):
        """Return ``{name: hosts}`` of a host's evacuation notes, signed or not."""
        return {name: note["hosts"] for name, note in self.notes[host].items()}

    def is_settled(self):
        """Return whether no host has a record of a move."""
        return not (self.departures or self.arrivals or self.buried or self.away)

    # The functions of a minion.

    def _does(self, host, fun, arg, kwarg):
        label = f"{fun} {arg[2]}" if fun == "virt.migrate_step" else fun
        self.asked.append((host, label))
        self.before.get((host, label), lambda: None)()
        missing = minions.Reply(minion=host, is_missing=True, error=SILENT.format(host))
        if not {host, (host, label)}.isdisjoint(self.silent):
            return missing
        does = getattr(self, f"_{fun.removeprefix('virt.')}")
        try:
            value = does(host, *arg, **kwarg)
        except VirtError as error:
            return minions.Reply(minion=host, error=str(error), kind=type(error).__name__)
        self.after.get((host, label), lambda: None)()
        is_unheard = (host, label, "the answer") in self.silent
        return missing if is_unheard else minions.Reply(minion=host, value=value)

    def _reply(self, host, fun, arg, kwarg):
        try:
            return self._does(host, fun, arg, kwarg)
        except hostcommands.HostCommandFailed as error:
            return minions.Reply(minion=host, error=str(error).removeprefix(f"{host}: "))
        except (FunctionMissing, VmIncomplete) as error:
            return minions.Reply(minion=host, error=str(error), kind=type(error).__name__)

    def ask(self, _cloud, targets, fun, arg=(), kwarg=None, **_options):
        """Stand for ``minions.ask``."""
        replies = {h: self._reply(h, fun, arg, kwarg or {}) for h in sorted(set(targets))}
        # Only a wait for a single host reports the limit that was reached.
        return {h: replace(r, error=None) if r.is_missing else r for h, r in replies.items()}

    def order(self, _cloud, host, fun, arg, kwarg, **_options):
        """Stand for ``minions.order``."""
        return self._reply(host, fun, arg, kwarg or {})

    def _host_info(self, host, moving=None):
        info = {
            **said_of(13),
            "tags": self.tags.get(host, {}),
            "vms": {
                name: {**told.VM, **{key: about[key] for key in _IN_HOST_INFO}}
                for name, about in self.hosts[host].items()
            },
            "building": self.building.get(host, []),
            "unfinished": [*self.unfinished.get(host, ()), *self.unreadable.get(host, ())],
            "unreadable": {**self.unreadable.get(host, {}), **self.not_loaded.get(host, {})},
        }
        return {**info, "moving": self.hosts[host][moving]} if moving in info["vms"] else info

    def _placement_facts(self, host, about):
        return told.placement_facts(host, self._host_info(host), about)

    def _presence(self, host, name):
        is_built = name in self.building.get(host, [])
        coming = self.arrivals.get((host, name), {}).get("phase") in _COMING
        about = self.hosts[host].get(name, {"state": None, "uuid": None})
        presence = {"state": about["state"], "uuid": about["uuid"]}
        if about.get("moved_to"):
            presence["moved_to"] = about["moved_to"]
        return {**presence, "building": is_built or coming, "unfinished": False}

    def _migration_info(self, host, name=None):
        vms = self.hosts[host]
        if name is not None and name not in vms:
            raise NoSuchVm(name)
        return dict(vms) if name is None else vms[name]

    def _evacuated(self, host, vms=None):
        merged = {**self.notes[host], **(vms or {})}
        self.notes[host] = {name: at for name, at in merged.items() if at}
        return self.notes[host]

    def _migrate_check(self, host, about, source=None):
        reasons_by_name = self.refuses.get(host, {})
        is_one = "disks" in about
        return (
            reasons_by_name.get(about["name"], [])
            if is_one
            else {n: reasons_by_name[n] for n in about if n in reasons_by_name}
        )

    def _load(self, host, _seconds=1):
        used = {name: {"cpu": 0.0, "memory_mib": 100} for name in self.hosts[host]}
        return {"cpus": 8, "memory_mib": 1000, "vms": used}

    def _set_maintenance(self, *_args):
        return True

    _maintenance = _set_maintenance

    # The two hosts of a move.

    def _source(self, host, name, **facts):
        hands = _Source(self, host, name, self.departures)
        hands.given = facts
        return hands

    def _target(self, host, name, noted=None):
        hands = _Target(self, host, name, self.arrivals)
        hands.given = noted or {}
        return hands

    def _migrate_begin(self, host, name, token, target):
        about = self._migration_info(host, name)
        hands = self._source(host, name, target=target)
        hands.do(moveprotocol.open_departure(hands.there, token))
        return {"wire": 1, **about}

    def _migrate_prepare(self, host, about, token, source):
        hands = self._target(host, about["name"])
        hands.do(moveprotocol.prepare(hands.there, token))
        return {"images": {}, "present": [], "token": token}

    def _migrate_push(self, host, **_kwargs):
        return True

    def _migrate(self, host, vm_, target, token, present, report):
        hands = self._source(host, vm_, target=target)
        hands.do(moveprotocol.send(hands.there, token))
        noted = {"autostart": hands.record["autostart"], "was_running": hands.record["was"]}
        return {"total_ms": 1, "noted": noted}

    def _migrate_step(self, host, name, token, step, noted=None, **options):
        make = getattr(moveprotocol, "give_way" if step == moveprotocol.LET_GO else step)
        if step in moveprotocol.ON_SOURCE:
            hands = self._source(host, name)
        else:
            hands = self._target(host, name, noted)
        hands.do(make(hands.there, token, **options))
        return {"removed": [], "warnings": hands.warnings}

    def _migration_state(self, host, name=None, token=None, uuid=None):
        if name is None:
            return self._on_record(host)
        departure = self._own(self.departures, host, name, token)
        source = self._source(host, name)
        is_away, is_here = (host, name) in self.away, name in self.hosts[host]
        buried = moveprotocol.CANCELLED if (host, token) in self.buried else None
        coming = self._own(self.arrivals, host, name, token)
        return {
            "source": {
                "phase": departure["phase"] if departure else buried,
                "is_live": (host, name) in self.live,
                "is_moving": False,
                "is_cut": False,
                "has": is_here or is_away,
                "stays": bool(departure) and source.stays(),
                "is_handed": bool(departure) and source.is_handed(),
            },
            "target": {
                "phase": coming and coming["phase"],
                "is_live": False,
                "is_arriving": False,
                "is_cut": False,
                "has": is_here and not self.hosts[host][name].get("moved_to"),
                "is_empty": bool(coming) and not is_here,
            },
            "noted": {"autostart": departure["autostart"]} if departure else {},
        }

    def _own(self, records, host, name, token):
        record = records.get((host, name))
        return record if record is not None and record["token"] == token else None

    def _on_record(self, host):
        out = {}
        for purpose, records in (("departure", self.departures), ("arrival", self.arrivals)):
            for (where, name), record in records.items():
                if where == host:
                    shown = {"purpose": purpose, "token": record["token"], "phase": record["phase"]}
                    shown |= {"since": 0.0, "uuid": None, "source": record.get("source")}
                    out.setdefault(name, []).append({**shown, "target": record.get("target")})
        return out


def clouds(monkeypatch):
    """Return a function that returns a cloud of hosts h1 to hN."""

    def make(count):
        cloud = Cloud([f"h{n}" for n in range(1, count + 1)])
        monkeypatch.setattr(inventory, "all_hosts", lambda _cloud: list(cloud.hosts))
        monkeypatch.setattr(minions, "ask", cloud.ask)
        monkeypatch.setattr(minions, "order", cloud.order)
        monkeypatch.setattr(moveexecutor, "_PATIENCE_S", 0)
        return cloud

    return make


def table(caught):
    """Return the table of an error, without its line."""
    return caught.value.table
