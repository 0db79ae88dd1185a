"""Findings: what is noted of orders, under clocks that jump and jobs that end meanwhile."""

import multiprocessing
import os
import time
import uuid

import pytest
from saltvirt.config import HostSettings
from saltvirt.errors import VirtError
from saltvirt.ops import ordered

ONE, TWO, THREE = "1" * 32, "2" * 32, "3" * 32


@pytest.fixture
def own(tmp_path):
    return HostSettings(state_dir=str(tmp_path / "state"))


def _age(own, days=8):
    """Let the clock have jumped forward since all that is noted was."""
    then = time.time() - days * 24 * 3600
    for path in (ordered._noted(own, ONE).parent).iterdir():
        os.utime(path, (then, then))


def test_an_order_that_runs_is_running_whatever_the_clock_says(own):
    with ordered.begun(own, ONE):
        _age(own)
        ordered.refuse(own, TWO)

        assert ordered.refuse(own, ONE) == "running"


def test_an_order_that_was_refused_stays_refused_when_the_clock_jumps(own):
    ordered.refuse(own, ONE)
    _age(own)
    ordered.refuse(own, TWO)

    with pytest.raises(VirtError), ordered.begun(own, ONE):
        pytest.fail("it was begun")


def _orders(own, failed, until):
    while time.monotonic() < until:
        try:
            with ordered.begun(own, uuid.uuid4().hex):
                pass
        except FileNotFoundError as error:
            failed.put(str(error))
            return


def test_orders_that_end_meanwhile_fail_no_other(own):
    context = multiprocessing.get_context("fork")
    failed, until = context.Queue(), time.monotonic() + 4
    several = [context.Process(target=_orders, args=(own, failed, until)) for _ in range(3)]
    for one in several:
        one.start()
    for one in several:
        one.join()

    assert failed.empty(), failed.get()
