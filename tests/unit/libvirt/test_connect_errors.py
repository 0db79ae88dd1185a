"""An error of libvirt can be caught as one of this library's, and as libvirt's own."""

import libvirt
import pytest
from salt.exceptions import CommandExecutionError
from saltvirt.core.errors import LibvirtRefused
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect

TEST = HostSettings(uri="test:///default")


@pytest.mark.parametrize(
    "error_class", [libvirt.libvirtError, LibvirtRefused, CommandExecutionError]
)
def test_a_refusal_of_libvirt_is_caught_by_either_name(error_class):
    words = "no network with matching name 'none'"
    with pytest.raises(error_class, match=words) as excinfo, connect.open_connection(TEST) as conn:
        conn.networkLookupByName("none")

    assert excinfo.value.get_error_code() == libvirt.VIR_ERR_NO_NETWORK
    # The error's kind goes over the wire.
    assert excinfo.value.to_dict()["kind"] == "LibvirtRefused"
    assert str(excinfo.value).startswith("Network not found: no network")


def test_an_error_keeps_its_own_words_after_another():
    with pytest.raises(LibvirtRefused) as first, connect.open_connection(TEST) as conn:
        conn.networkLookupByName("none")
    with pytest.raises(LibvirtRefused), connect.open_connection(TEST) as conn:
        conn.storagePoolLookupByName("none")

    assert first.value.get_error_code() == libvirt.VIR_ERR_NO_NETWORK
    assert "no network" in first.value.get_error_message()


def test_an_error_has_its_own_words_though_an_undo_has_failed_since():
    def fail_twice(conn):
        try:
            conn.networkLookupByName("none")
        except libvirt.libvirtError:
            with pytest.raises(libvirt.libvirtError):
                conn.storagePoolLookupByName("none")
            raise

    with (
        pytest.raises(LibvirtRefused, match="no network") as excinfo,
        connect.open_connection(TEST) as conn,
    ):
        fail_twice(conn)

    assert excinfo.value.get_error_code() == libvirt.VIR_ERR_NO_NETWORK
