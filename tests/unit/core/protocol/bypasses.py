"""What happens to the checker's cloud without the project's commands: no record shows it."""

from clouds import NOTHING, UNSYNCED, WHOLE, Host, change, with_runner
from saltvirt.core.protocol import moveprotocol


class Bypasses:
    """The actions of an operator who uses virsh, or reinstalls a host under its name."""

    def without_us(self, world):
        """Yield what an operator does without the project's commands, so without records."""
        for number, host in enumerate(world.hosts):
            yield f"host {number} is reinstalled", self._reinstalled(world, number)
            phase = host.departure and host.departure.phase
            is_away = phase in (moveprotocol.HANDING, moveprotocol.LEAVING)
            if is_away and host.job is None and not host.active:
                yield from self._brought_back(world, number)

    def _brought_back(self, world, number):
        """Yield the ways in which a handed-over VM returns to its source, or starts there."""
        host = world.hosts[number]
        target_host = world.hosts[host.departure.target]
        if target_host.defined and target_host.files >= UNSYNCED:
            changes = {"defined": WHOLE, "files": WHOLE, "is_migrated": False}
            changes |= {"version": target_host.version, "active": target_host.active}
            without_target = change(world, host.departure.target, defined=NOTHING, active=False)
            after = change(without_target, number, **changes)._replace(is_bypassed=True)
            yield f"virsh migrate back to {number}", after
        # A VM that is started during the hand-over would run twice.
        is_at_work = host.departure.phase == moveprotocol.HANDING and self.is_live(
            world, number, self.model.on_source
        )
        is_elsewhere = any(h.defined for n, h in enumerate(world.hosts) if n != number)
        if host.files >= UNSYNCED and not (is_elsewhere or is_at_work):
            new = change(world, number, defined=WHOLE, is_migrated=False)
            after = self.started(new, number)._replace(is_undefined=False)
            yield f"virsh define and start on {number}", after

    def _reinstalled(self, world, number):
        """Return the world after a host is reinstalled under its name; its disks are gone."""
        budget = (*world.budget[:2], world.budget[2] + 1, *world.budget[3:])
        for master, runner in enumerate(world.runners):
            if runner and runner.call:
                call = self._parted(world, runner.call, number)
                world = with_runner(world, master, runner._replace(call=call))
        stalled = [self._parted(world, call, number) for call in world.stalled]
        world = world._replace(stalled=tuple(sorted(stalled, key=repr)), budget=budget)
        reinstalled = change(self._cut(world, number), number, **Host()._asdict())
        reinstalled = reinstalled._replace(is_bypassed=True)
        complete_hosts = [host for host in reinstalled.hosts if host.files == WHOLE]
        if not complete_hosts:
            return reinstalled._replace(is_purged=True, is_undefined=True)
        latest = max(host.version for host in complete_hosts)
        is_defined = any(host.defined == host.files == WHOLE for host in reinstalled.hosts)
        return reinstalled._replace(
            latest=latest, is_undefined=reinstalled.is_undefined or not is_defined
        )

    @staticmethod
    def _parted(world, call, number):
        """Return a call, failed if it was sending data to the reinstalled host."""
        departure = world.hosts[call.host].departure
        if not (call.has_begun and departure and departure.target == number):
            return call
        return call._replace(answers=(*call.answers, ("error", "cut off")), has_begun=False)
