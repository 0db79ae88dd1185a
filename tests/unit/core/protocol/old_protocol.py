"""
The protocol of a move as it was before the records, for the same checker, which finds its faults.

The target had a claim, whoever asked it to forget that removed its files; libvirt undefined the VM
at its source; the source's note was read only when its process had died.
"""

from checker import Checker
from cloudhands import Hands
from clouds import NOTHING, UNSYNCED, Lost, Model, Refused, is_arriving


def _prepare(there, token):
    if there is not None:
        raise Refused("it is being built")
    yield ("check",)
    yield "begin", token, "claimed"
    yield ("make",)


def _send(_there, token):
    # Its state was read once, here.
    yield "begin", token, "departing"
    try:
        yield ("push",)
        yield ("migrate",)
    except Exception:
        # Whatever libvirt did: the note went with the failure.
        yield ("end",)
        raise
    yield ("remove",)
    yield ("end",)


def _forget(there, _token):
    """Give up what was made ready, unless the VM has come; whose claim it was nobody asked."""
    yield ("wait_arrival",)
    if there is not None:
        yield ("remove_unless_defined",)
        yield ("end",)


def _settle_source(there, _token):
    if there is not None and (yield ("has_left",)):
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
    """The parts as they were."""

    on_source = {"send": _send, "settle_source": _settle_source}
    on_target = {"prepare": _prepare, "forget": _forget}
    on_master = {"move": _move, "settle": _settle}

    def is_startable(self, host):
        return bool(host.defined)

    def may_purge(self, host):
        return bool(host.defined)


class OldHands(Hands):
    """The effects as they were: libvirt looked at no disk, and nobody at what had changed."""

    @property
    def record(self):
        return "departure" if self.call.part in OldModel.on_source else "arrival"

    def migrate(self):
        number, other = self.other()
        if self.host.departure.was:
            if self.host.active or not other.defined:
                raise Refused("libvirt's job has failed")
            return self.put(defined=NOTHING)
        # It moves the definition of one that does not run, and undefines it here unless it runs.
        self.world, _none = self.put(number, defined=max(other.defined, UNSYNCED))
        return self.put(defined=self.host.defined if self.host.active else NOTHING)

    def remove(self):
        return self.put(files=NOTHING)

    def has_left(self):
        _number, other = self.other()
        return self.world, not self.host.defined and bool(other.defined)

    def wait_arrival(self):
        if is_arriving(self.world, self.call.host):
            raise Refused("it is still arriving here")
        return self.world, None

    def remove_unless_defined(self):
        if self.host.defined or not self.host.arrival:
            return self.world, None
        return self.put(files=NOTHING)


class OldChecker(Checker):
    """A checker of what is there and of what is said, at every instant."""

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
