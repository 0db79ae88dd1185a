"""
Both ends of a move, each on libvirt's test driver, with real files and records.

One process has one such libvirt, so the *other* host's is a fake: a folder takes the pushed files,
and a list records calls of libvirt's own migration.
"""

from pathlib import Path

from saltvirt.core import wire
from saltvirt.core.journal import records
from saltvirt.core.journal.movefacts import Noted
from saltvirt.core.model import Move
from saltvirt.core.protocol import effects, moveprotocol, recoveryprotocol
from saltvirt.core.protocol.effects import run
from saltvirt.libvirt import connect, reservations
from saltvirt.libvirt.domains import lifecycle
from saltvirt.migration.host import arrival, departure, movestate
from saltvirt.vm.power.host import startlock

UUID = "4dea22b3-1d52-d8f3-2516-782e98ab3fa0"
TOKEN = "t1"


class End:
    """A host with its side of a move."""

    def __init__(self, hypervisor, folder):
        self.hypervisor, self.settings, self.folder = hypervisor, hypervisor.settings, folder
        self.images = Path(hypervisor.settings.images)
        # Functions that run while files are pushed, and while libvirt moves the VM.
        self.meanwhile, self.moving = (lambda: None), (lambda: None)
        # VMs that were undefined here with the flag to keep the state of the TPM.
        self.kept_tpms = {}

    @property
    def context(self):
        return self.hypervisor.context

    def record(self, purpose, name="web1"):
        """Return a record, None if there is none."""
        return records.read_record(reservations.folder(self.settings), purpose, name)

    def phase(self, purpose, name="web1"):
        """Return the phase of a record."""
        locked_record = self.record(purpose, name)
        return locked_record and locked_record.phase

    def define(self, conn, name="web1", uuid=UUID, firmware="", paths=()):
        """Define a VM with raw disks."""
        disks = "".join(
            f"<disk type='file' device='disk'><driver name='qemu' type='raw'/>"
            f"<source file='{path}'/><target dev='vd{'abc'[n]}' bus='virtio'/></disk>"
            for n, path in enumerate(paths)
        )
        xml = (
            f"<domain type='test'><name>{name}</name><uuid>{uuid}</uuid><memory>65536</memory>"
            f"<os><type arch='i686' machine='pc'>hvm</type>{firmware}</os>"
            f"<devices>{disks}</devices></domain>"
        )
        lifecycle.define(conn, xml)

    def make(self, conn, name="web1", uuid=UUID, count=2):
        """Define a stopped VM with this number of disks; return their paths."""
        self.images.mkdir(exist_ok=True)
        paths = [self.images / f"{name}_{n}.raw" for n in range(count)]
        for n, path in enumerate(paths):
            path.write_bytes(bytes(300_000) + bytes([n + 1]) * 100_000)
        self.define(conn, name, uuid, paths=paths)
        return paths

    # The source.

    def begin(self, token=TOKEN):
        """Begin a departure to hyper2."""
        return departure.begin(self.context, "web1", token, "hyper2")

    def send(self, token=TOKEN, **options):
        """Send the VM."""
        return departure.send(self.context, "web1", token, "hyper2", Move(**options), [])

    def step(self, step_name, token=TOKEN, **options):
        """Run a step of settling on its side."""
        side = departure if step_name in moveprotocol.ON_SOURCE else arrival
        if "noted" in options:
            options["noted"] = wire.argument("noted", Noted, options["noted"])
        return side.step(self.context, "web1", token, step_name, **options)

    def state(self, conn, token=TOKEN):
        """Return the host's state of the move as plain data."""
        return wire.plain(movestate.read_state(conn, self.settings, "web1", token, UUID))


def is_untouched(end, paths, name="web1"):
    """Return whether a VM is here as before, and may be started."""
    with (
        connect.open_connection(end.settings) as conn,
        startlock.allow_start(conn, end.settings, name),
    ):
        return all(path.stat().st_size == 400_000 for path in paths)


class Settling:
    """The master's executor: one real end, and one that is a fake."""

    def __init__(self, site, conn, other_state):
        self.site, self.conn, self.other, self.done = site, conn, other_state, []

    def look_at_source(self):
        self.source = moveprotocol.Source(**self.site.state(self.conn)["source"])
        return self.source

    def look_at_target(self):
        return moveprotocol.Target(**self.other)

    def look_elsewhere(self):
        return effects.ThirdHosts()

    def close(self):
        pass

    def __getattr__(self, step):
        def do():
            self.done.append(step)
            if step in moveprotocol.ON_SOURCE:
                is_gone = self.other.get("phase") in (None, "refused")
                options = {"seen": self.source.phase, "is_refused": is_gone}
                step_options = options if step == "cancel" else {}
                self.site.step(step, **step_options)
            else:
                phase_after = {"arrive": "arrived", "refuse": "refused"}.get(step)
                self.other["phase"] = phase_after
                if step == "drop":
                    self.other["has"] = False

        return do

    def settle(self):
        """Return the outcome, and whether the VM has moved."""
        return run(recoveryprotocol.settle(), self)
