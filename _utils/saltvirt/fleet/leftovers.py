"""What a move that was broken off has left on the hosts, by the master's journal."""

import time

from saltvirt.fleet import minions


def forget(opts, settings, host, name):
    """Have a host give up what it had made ready for a VM; return whether it did, after a while."""
    for wait_s in (0, 1, 3, 6):
        time.sleep(wait_s)
        asked = minions.ask(opts, [host], "virt.migrate_forget", [name],
                            timeout_s=settings.timeout_s)  # fmt: skip
        if asked[host].missing:
            return False
        if asked[host].ok:
            return True
    return False


def settle(opts, settings, name, entry):
    """Tidy up both hosts of a move of which the journal still knows."""
    if entry.left and "to" in entry.left:
        for host in (entry.left["to"], entry.left["host"]):
            forget(opts, settings, host, name)
