"""The effects of a call on a host of the checker's cloud."""

from clouds import (
    NOTHING,
    PART,
    UNSYNCED,
    WHOLE,
    Arrival,
    Departure,
    Model,
    Refused,
    change,
    is_arriving,
)
from saltvirt.core.protocol import moveprotocol


class Hands:
    """The effects of a call on the world; each method returns ``(world, answer)``."""

    def __init__(self, world, call):
        self.world, self.call = world, call
        self.host = world.hosts[call.host]
        self.arguments = dict(call.arguments)

    @property
    def record(self):
        """The kind of the host's record that this call works on."""
        return "departure" if self.call.part in Model.on_source else "arrival"

    def put(self, number=None, **changes):
        """Change the call's host, or another."""
        return change(self.world, self.call.host if number is None else number, **changes), None

    def begin(self, token, phase):
        if self.record == "arrival":
            return self.put(arrival=Arrival(token, phase, self.arguments["source"]))
        if not self.host.defined:
            raise Refused("no such VM")
        host = self.host
        if host.arrival is not None:
            raise Refused("its move to here is not over")
        if self.call.part == "copied" and not host.active:
            raise Refused("libvirt does not copy the disks of a stopped VM")
        moving = Departure(token, phase, self.arguments["target"], host.active, host.auto)
        return self.put(departure=moving._replace(leaves=self.world.leaves))

    def enter(self, phase):
        return self.put(**{self.record: getattr(self.host, self.record)._replace(phase=phase)})

    def end(self):
        return self.put(**{self.record: None})

    def bury(self, token):
        return self.put(buried=self.host.buried | {token})

    def unbury(self, token):
        return self.put(buried=self.host.buried - {token})

    def other_host(self):
        """Return the number of the other host of a departure, and that host."""
        number = self.host.departure.target
        return number, self.world.hosts[number]

    def begin_push(self):
        _number, other_host = self.other_host()
        if other_host.files == NOTHING:
            raise Refused("no such volume")
        return self.world, None

    def push(self):
        # A file that was removed during the write is written to its end without an error.
        number, other_host = self.other_host()
        if self.host.departure.was_active or other_host.files == NOTHING:
            return self.world, None
        return self.put(number, files=UNSYNCED, version=self.host.version)

    def hold(self):
        departure, (_number, other_host) = self.host.departure, self.other_host()
        if self.host.active != departure.was_active:
            raise Refused("its state has changed")
        if not departure.was_active and other_host.version != self.host.version:
            raise Refused("its disk has changed")
        noted = departure._replace(phase=moveprotocol.HANDING, version=self.host.version)
        return self.put(departure=noted)

    def autostart_off(self):
        return self.put(auto=False)

    def autostart_on(self):
        if self.record == "departure":
            return self.put(auto=self.host.departure.auto)
        return self.put(auto=self.arguments.get("auto", False))

    def begin_migrate(self):
        number, other_host = self.other_host()
        if not self.host.departure.was_active:
            return self.world, None
        if other_host.files == NOTHING:
            raise Refused("libvirt finds no disk there")
        if not self.host.active:
            raise Refused("domain is not running")
        return self.put(job=number)

    def migrate(self):
        number, other_host = self.other_host()
        if not self.host.departure.was_active:
            # libvirt moves the definition of a stopped VM, and checks no disk.
            return self.put(number, defined=max(other_host.defined, UNSYNCED))
        if self.host.active or not other_host.defined:
            raise Refused("libvirt's job has failed")
        return self.world, None

    def stays(self):
        is_here = self.host.departure.was_active and self.host.active and self.host.job is None
        return self.world, is_here

    def is_handed(self):
        return self.world, self.host.is_migrated

    def define_there(self):
        number, other_host = self.other_host()
        if other_host.files == NOTHING:
            raise Refused("its disks are not there")
        return self.put(number, defined=max(other_host.defined, UNSYNCED))

    def look(self):
        _number, other_host = self.other_host()
        if self.host.active or not other_host.defined or other_host.files < UNSYNCED:
            raise Refused("it is not gone from here, or not there")
        return self.world, None

    def undefine(self):
        if self.record == "departure" and not self.host.departure.leaves:
            return self.world, None
        if self.record == "departure" and self.host.defined:
            self.look()
        if self.host.active:
            raise Refused("it runs")
        return self.put(defined=NOTHING)

    def remove(self):
        record = getattr(self.host, self.record)
        if not (record.has_made if self.record == "arrival" else record.leaves):
            return self.world, None
        # Files that a domain uses stay.
        if self.host.defined:
            return self.world, None
        if self.record == "departure" and self.host.files != NOTHING:
            self.look()
        return self.put(files=NOTHING)

    def refuse_gone(self):
        if not (self.host.defined and self.host.files >= UNSYNCED):
            raise Refused("it is removed already")
        return self.world, None

    def check(self):
        if self.host.files != NOTHING or self.host.defined or self.host.departure:
            raise Refused("it is there already")
        return self.world, None

    def begin_make(self):
        if self.host.files != NOTHING and not self.host.arrival.has_made:
            raise Refused("a file is there already")
        # The mark is on record before the file is created.
        return self.put(arrival=self.host.arrival._replace(has_made=True))

    def make(self):
        if self.world.has_images and self.call.part == "prepare":
            return self.world, True
        world, _none = self.put(files=PART, version=-1)
        return world, False

    def verify(self):
        is_same = self.arguments["was_active"] or self.host.version == self.arguments["version"]
        if not self.host.defined or self.host.files < UNSYNCED or not is_same:
            raise Refused("it is not here as it was")
        return self.put(files=WHOLE, defined=WHOLE)

    def refuse_running(self):
        if self.host.active or is_arriving(self.world, self.call.host):
            raise Refused("it runs here")
        return self.world, None
