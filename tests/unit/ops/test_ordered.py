"""An order that the master has given up is not begun, however late its job is done."""

import os
import time

import pytest
from saltvirt.config import HostSettings
from saltvirt.errors import BadArgument, VirtError
from saltvirt.ops import ordered

ONE, TWO = "1" * 32, "2" * 32


@pytest.fixture
def own(tmp_path):
    """A host whose state folder is not there yet."""
    return HostSettings(state_dir=str(tmp_path / "state"))


def test_an_order_that_was_refused_is_not_begun(own):
    assert [ordered.refuse(own, ONE), ordered.refuse(own, ONE)] == ["refused", "refused"]

    with pytest.raises(VirtError, match="given this order up"), ordered.begun(own, ONE):
        pytest.fail("it was begun")
    with ordered.begun(own, TWO):
        pass  # another is


def test_an_order_that_was_begun_says_whether_it_is_over(own):
    with ordered.begun(own, ONE):
        assert ordered.refuse(own, ONE) == "running"

    assert ordered.refuse(own, ONE) == "over"
    with pytest.raises(VirtError, match="begun before"), ordered.begun(own, ONE):
        pytest.fail("it was begun twice")


def test_what_is_known_of_an_order_is_forgotten_after_a_week(own, tmp_path):
    ordered.refuse(own, ONE)
    old = time.time() - 8 * 24 * 3600
    os.utime(tmp_path / "state" / "orders" / ONE, (old, old))

    ordered.refuse(own, TWO)

    assert [path.name for path in (tmp_path / "state" / "orders").iterdir()] == [TWO]


@pytest.mark.parametrize("order_id", ["", "../" + "1" * 29, "A" * 32, None, 1])
def test_what_is_not_an_id_names_no_file(own, tmp_path, order_id):
    with pytest.raises(BadArgument, match="is not the id of an order"):
        ordered.refuse(own, order_id)
    assert not (tmp_path / "state").exists()
