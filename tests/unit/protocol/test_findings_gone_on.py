"""Finding: power cuts, beside moves by hand from host to host to host."""

import pytest
from checker import Checker
from clouds import PART, UNSYNCED, WHOLE, Call, Host, World, change
from test_gone_on import Onward


class Further(Onward):
    """As Onward, over more hosts, and with real power cuts."""

    # Whether what has come is on the disk at once.
    is_synced = True

    def _commands(self, world, master):
        yield from (
            (label, there)
            for label, there in super()._commands(world, master)
            if "by hand" not in label
        )
        n = world.tokens
        if world.left[0] and n < len(world.hosts) - 1 and not (n and world.stalled):
            spent = world._replace(left=(world.left[0] - 1, *world.left[1:]))
            call = Call(n, "copied", f"t{n}", (("source", n), ("target", n + 1)))
            moved = spent._replace(tokens=n + 1, stalled=(*spent.stalled, call))
            yield f"somebody moves {n}->{n + 1} by hand", moved

    def _cut(self, world, number):
        host = world.hosts[number]
        if self.is_synced:
            files = WHOLE if host.files == UNSYNCED else host.files
            defined = WHOLE if host.defined == UNSYNCED else host.defined
            world = change(world, number, files=files, defined=defined)
        return Checker._cut(self, world, number)


@pytest.mark.parametrize("left", [(3, 0, 1, 0)], ids=str)
# Over three hosts nothing is found; four take a minute and a half.
@pytest.mark.parametrize("count", [4])
def test_moves_by_hand_and_power_cuts_lose_nothing(left, count):
    source = Host(defined=WHOLE, active=True, files=WHOLE, auto=True)
    target = Host(files=PART, version=-1)
    hosts = (source, *[target] * (count - 1))

    Further().explore(World(hosts, left=left, is_by_hand=True))
