"""What happens to the checker's cloud without our commands: no record shows it."""

from clouds import NOTHING, UNSYNCED, WHOLE, Host, change, with_runner
from saltvirt.core.protocol import moveprotocol


class Bypasses:
    """The deeds of somebody who uses virsh, or reinstalls a host under its name."""

    def without_us(self, world):
        """Yield what somebody does without our commands, which our records do not show."""
        for number, host in enumerate(world.hosts):
            yield f"host {number} is reinstalled", self._reinstalled(world, number)
            phase = host.departure and host.departure.phase
            is_away = phase in (moveprotocol.HANDING, moveprotocol.LEAVING)
            if is_away and host.job is None and not host.active:
                yield from self._brought_back(world, number)

    def _brought_back(self, world, number):
        """Yield how a VM that was handed over comes back to its source, or is started there."""
        host = world.hosts[number]
        other = world.hosts[host.departure.target]
        if other.defined and other.files >= UNSYNCED:
            back = {"defined": WHOLE, "files": WHOLE, "is_migrated": False}
            back |= {"version": other.version, "active": other.active}
            gone = change(world, host.departure.target, defined=NOTHING, active=False)
            after = change(gone, number, **back)._replace(is_bypassed=True)
            yield f"virsh migrate back to {number}", after
        # To start one while it is handed over is to start it twice.
        is_at_work = host.departure.phase == moveprotocol.HANDING and self.is_live(
            world, number, self.model.on_source
        )
        is_elsewhere = any(it.defined for n, it in enumerate(world.hosts) if n != number)
        if host.files >= UNSYNCED and not (is_elsewhere or is_at_work):
            new = change(world, number, defined=WHOLE, is_migrated=False)
            after = self.started(new, number)._replace(is_undefined=False)
            yield f"virsh define and start on {number}", after

    def _reinstalled(self, world, number):
        """Return the world in which a host is as new, under its name; its disks are gone."""
        left = (*world.left[:2], world.left[2] + 1, *world.left[3:])
        for master, runner in enumerate(world.runners):
            if runner and runner.call:
                call = self._parted(world, runner.call, number)
                world = with_runner(world, master, runner._replace(call=call))
        stalled = [self._parted(world, call, number) for call in world.stalled]
        world = world._replace(stalled=tuple(sorted(stalled, key=repr)), left=left)
        bare = change(self._cut(world, number), number, **Host()._asdict())
        bare = bare._replace(is_bypassed=True)
        whole = [host for host in bare.hosts if host.files == WHOLE]
        if not whole:
            return bare._replace(is_purged=True, is_undefined=True)
        latest = max(host.version for host in whole)
        is_defined = any(host.defined == host.files == WHOLE for host in bare.hosts)
        return bare._replace(latest=latest, is_undefined=bare.is_undefined or not is_defined)

    @staticmethod
    def _parted(world, call, number):
        """Return a call that fails if it was sending something to a host which is reinstalled."""
        departure = world.hosts[call.host].departure
        if not (call.has_begun and departure and departure.target == number):
            return call
        return call._replace(answers=(*call.answers, ("error", "cut off")), has_begun=False)
