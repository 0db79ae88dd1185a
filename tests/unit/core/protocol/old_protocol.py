"""
The protocol of a move before there were records, in which the same checker finds faults.

The target had a claim, and any request to forget it removed the files; libvirt undefined the VM on
its source; the source's record was read only after its process had died.
"""

from checker import Checker
from cloudhands import Hands
from clouds import NOTHING, UNSYNCED, Lost, Model, Refused, is_arriving


def _prepare(record, token):
    if record is not None:
        raise Refused("it is being built")
    yield ("check",)
    yield "begin", token, "claimed"
    yield ("make",)


def _send(_record, token):
    # The VM's state was read only once, here.
    yield "begin", token, "departing"
    try:
        yield ("push",)
        yield ("migrate",)
    except Exception:
        # The record was removed after each failure, with any outcome in libvirt.
        yield ("end",)
        raise
    yield ("remove",)
    yield ("end",)


def _forget(record, _token):
    """Undo the preparation unless the VM has arrived, without a check of the claim's owner."""
    yield ("wait_arrival",)
    if record is not None:
        yield ("remove_unless_defined",)
        yield ("end",)


def _settle_source(record, _token):
    if record is not None and (yield ("has_left",)):
        yield ("remove",)
        yield ("end",)


def _move():
    yield ("order",)
    try:
        yield ("prepare",)
        yield ("send",)
    except Exception as error:
        yield from _given_up()
        return "stays", str(error) == "cut off"
    yield from _given_up()
    return "moved", True


def _given_up():
    try:
        yield ("forget",)
        yield ("close",)
    except Exception:
        return


def _settle():
    try:
        yield ("forget",)
        yield ("settle_source",)
        yield ("close",)
    except Exception:
        return "done", None
    return "done", None


class OldModel(Model):
    """The parts of the old protocol."""

    on_source = {"send": _send, "settle_source": _settle_source}
    on_target = {"prepare": _prepare, "forget": _forget}
    on_master = {"move": _move, "settle": _settle}

    def is_startable(self, host):
        return bool(host.defined)

    def may_purge(self, host):
        return bool(host.defined)


class OldHands(Hands):
    """The effects of the old protocol: no check of the disk, and none of changes."""

    @property
    def record(self):
        return "departure" if self.call.part in OldModel.on_source else "arrival"

    def migrate(self):
        number, other_host = self.other_host()
        if self.host.departure.was_active:
            if self.host.active or not other_host.defined:
                raise Refused("libvirt's job has failed")
            return self.put(defined=NOTHING)
        # libvirt moves the definition of a stopped VM, and undefines it here unless it runs.
        self.world, _none = self.put(number, defined=max(other_host.defined, UNSYNCED))
        return self.put(defined=self.host.defined if self.host.active else NOTHING)

    def remove(self):
        return self.put(files=NOTHING)

    def has_left(self):
        _number, other_host = self.other_host()
        return self.world, not self.host.defined and bool(other_host.defined)

    def wait_arrival(self):
        if is_arriving(self.world, self.call.host):
            raise Refused("it is still arriving here")
        return self.world, None

    def remove_unless_defined(self):
        if self.host.defined or not self.host.arrival:
            return self.world, None
        return self.put(files=NOTHING)


class OldChecker(Checker):
    """A checker of the hosts and of the reported outcome in each state."""

    hands = OldHands

    def __init__(self):
        super().__init__(OldModel())

    def check(self, world):
        self._check_there(world)

    def without_us(self, world):
        return ()

    def reported(self, world, runner, value):
        if value == ("stays", True) and not world.hosts[runner.source].defined:
            raise Lost("it is said to stay, and has moved")
