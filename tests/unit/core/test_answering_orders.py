"""An order that the master has given up is not begun, however late its job is done."""

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
def own(tmp_path):
    """A host whose state folder is not there yet."""
    return HostSettings(state_dir=str(tmp_path / "state"))


def test_an_order_that_was_refused_is_not_begun(own):
    assert [answering.refuse_order(own, ONE), answering.refuse_order(own, ONE)] == [
        "refused",
        "refused",
    ]

    with pytest.raises(VirtError, match="given this order up"), answering.begin_order(own, ONE):
        pytest.fail("it was begun")
    with answering.begin_order(own, TWO):
        pass  # another is


def test_an_order_that_was_begun_says_whether_it_is_over(own):
    with answering.begin_order(own, ONE):
        assert answering.refuse_order(own, ONE) == "running"

    assert answering.refuse_order(own, ONE) == "over"
    with pytest.raises(VirtError, match="begun before"), answering.begin_order(own, ONE):
        pytest.fail("it was begun twice")


def test_the_last_orders_are_known_and_the_oldest_are_forgotten(own, monkeypatch):
    monkeypatch.setattr(answering, "_KEPT", 3)
    ids = [f"{number:032x}" for number in range(20)]
    for count, one in enumerate(ids):
        with answering.begin_order(own, one):
            pass
        assert all(
            answering.refuse_order(own, known) == "over" for known in ids[max(0, count - 2) : count]
        )

    known = [path.name for path in (Path(own.state_dir) / "orders").rglob("*") if path.is_file()]
    assert len(known) <= 6
    with answering.begin_order(own, ids[0]):
        pass  # it is too long ago


def _orders(own, failed, until):
    while time.monotonic() < until:
        try:
            with answering.begin_order(own, uuid.uuid4().hex):
                pass
        except (OSError, VirtError) as error:
            failed.put(str(error))
            return


@pytest.mark.slow
def test_orders_that_end_meanwhile_fail_no_other(own, monkeypatch):
    monkeypatch.setattr(answering, "_KEPT", 5)
    context = multiprocessing.get_context("fork")
    failed, until = context.Queue(), time.monotonic() + 1
    several = [context.Process(target=_orders, args=(own, failed, until)) for _ in range(3)]
    for one in several:
        one.start()
    for one in several:
        one.join()

    assert failed.empty(), failed.get()


@pytest.mark.parametrize("order_id", ["", "../" + "1" * 29, "A" * 32, None, 1])
def test_what_is_not_an_id_names_no_file(own, tmp_path, order_id):
    with pytest.raises(BadArgument, match="is not the id of an order"):
        answering.refuse_order(own, order_id)
    assert not (tmp_path / "state").exists()


def test_an_order_that_cannot_be_noted_is_not_begun_and_it_is_one_line(own, monkeypatch):
    def full(_path, _data):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(answering.files, "write", full)
    expected = "cannot note the master's order in .*/orders: No space left on device; make room"

    with pytest.raises(StorageError, match=expected), answering.begin_order(own, ONE):
        pytest.fail("it was begun")
    with pytest.raises(StorageError, match=expected):
        answering.refuse_order(own, ONE)
