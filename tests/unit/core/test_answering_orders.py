"""An order that the master has cancelled does not begin, even if its job runs much later."""

import multiprocessing
import time
import uuid
from pathlib import Path

import pytest
from saltvirt.core.errors import BadArgument, StorageError, VirtError
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt import answering

ONE, TWO = "1" * 32, "2" * 32


@pytest.fixture
def settings(tmp_path):
    """The settings of a host without a state folder."""
    return HostSettings(state_dir=str(tmp_path / "state"))


def test_an_order_that_was_refused_is_not_begun(settings):
    assert [answering.refuse_order(settings, ONE), answering.refuse_order(settings, ONE)] == [
        "refused",
        "refused",
    ]

    with (
        pytest.raises(VirtError, match="given this order up"),
        answering.begin_order(settings, ONE),
    ):
        pytest.fail("it was begun")
    with answering.begin_order(settings, TWO):
        pass  # another order begins


def test_a_begun_order_reports_whether_it_is_over(settings):
    with answering.begin_order(settings, ONE):
        assert answering.refuse_order(settings, ONE) == "running"

    assert answering.refuse_order(settings, ONE) == "over"
    with pytest.raises(VirtError, match="begun before"), answering.begin_order(settings, ONE):
        pytest.fail("it was begun twice")


def test_the_last_orders_are_known_and_the_oldest_are_forgotten(settings, monkeypatch):
    monkeypatch.setattr(answering, "_KEPT", 3)
    ids = [f"{number:032x}" for number in range(20)]
    for count, order_id in enumerate(ids):
        with answering.begin_order(settings, order_id):
            pass
        assert all(
            answering.refuse_order(settings, recent_id) == "over"
            for recent_id in ids[max(0, count - 2) : count]
        )

    files = [
        path.name for path in (Path(settings.state_dir) / "orders").rglob("*") if path.is_file()
    ]
    assert len(files) <= 6
    with answering.begin_order(settings, ids[0]):
        pass  # the host has forgotten this one


def _orders(settings, failed, until):
    while time.monotonic() < until:
        try:
            with answering.begin_order(settings, uuid.uuid4().hex):
                pass
        except (OSError, VirtError) as error:
            failed.put(str(error))
            return


@pytest.mark.slow
def test_concurrent_ends_of_orders_fail_no_order(settings, monkeypatch):
    monkeypatch.setattr(answering, "_KEPT", 5)
    context = multiprocessing.get_context("fork")
    failed, until = context.Queue(), time.monotonic() + 1
    processes = [context.Process(target=_orders, args=(settings, failed, until)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()

    assert failed.empty(), failed.get()


@pytest.mark.parametrize("order_id", ["", "../" + "1" * 29, "A" * 32, None, 1])
def test_a_wrong_id_names_no_file(settings, tmp_path, order_id):
    with pytest.raises(BadArgument, match="is not the id of an order"):
        answering.refuse_order(settings, order_id)
    assert not (tmp_path / "state").exists()


def test_an_order_that_cannot_be_recorded_does_not_begin(settings, monkeypatch):
    def full(_path, _data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(answering.files, "write", full)
    expected = "cannot note the master's order in .*/orders: No space left on device; make room"

    with pytest.raises(StorageError, match=expected), answering.begin_order(settings, ONE):
        pytest.fail("it was begun")
    with pytest.raises(StorageError, match=expected):
        answering.refuse_order(settings, ONE)
