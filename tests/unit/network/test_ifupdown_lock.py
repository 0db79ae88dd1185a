"""The wait for ifupdown's lock of its own state is bounded."""

import subprocess
import sys
import threading

import pytest
from saltvirt.network.managers import ifupdown, tools

HOLD = """
import fcntl, sys
lock = open(sys.argv[1], "w")
fcntl.lockf(lock, fcntl.LOCK_EX)
print(flush=True)
sys.stdin.read()
"""


def test_a_lock_of_ifupdown_that_is_not_released_is_named_with_its_holder(tmp_path, monkeypatch):
    state, lock = tmp_path / "ifstate", tmp_path / ".ifstate.lock"
    state.write_text("lo=lo\nbr0=br0\n")
    monkeypatch.setattr(ifupdown, "_STATE", state)
    monkeypatch.setattr(ifupdown, "_LOCK", lock)
    monkeypatch.setattr(ifupdown, "_LOCK_S", 0.2)
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child:
        child.stdout.readline()
        message = rf"^{lock} is held by process {child.pid} \(.*python.*\) for more than 0.2 s: "
        with pytest.raises(tools.PersistenceError, match=message) as excinfo:
            ifupdown._forget_state("br0")
        assert "\n" not in str(excinfo.value)
        assert "br0=br0" in state.read_text()
        # The lock is taken as soon as it is free.
        monkeypatch.setattr(ifupdown, "_LOCK_S", 30)
        threading.Timer(0.2, child.stdin.close).start()
        ifupdown._forget_state("br0")

    assert state.read_text() == "lo=lo\n"
