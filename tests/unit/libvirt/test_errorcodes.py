"""What libvirt's errors mean by their codes, with libvirt's test driver."""

import libvirt
import pytest
from saltvirt.libvirt import errorcodes


class Vanishing:
    """An object of libvirt that may be gone when it is read."""

    def __init__(self, name, error=None):
        self._name, self._error = name, error

    def name(self):
        """Return the name, which libvirt-python knows."""
        return self._name

    def read(self):
        """Return a value, or raise the error."""
        if self._error is not None:
            raise self._error
        return self._name.upper()


def error(code):
    """Return an error of libvirt with a code."""
    exception = libvirt.libvirtError("it failed")
    exception.err = (getattr(libvirt, f"VIR_ERR_{code}"), 0, "it failed", 2, "", "", "", 0, 0)
    return exception


def test_an_error_is_known_by_any_of_some_codes():
    assert errorcodes.has_code(error("NO_DOMAIN"), "NO_NETWORK", "NO_DOMAIN")
    assert not errorcodes.has_code(error("NO_DOMAIN"), "NO_NETWORK")


def test_a_default_takes_the_place_of_these_errors_alone():
    missing_network = Vanishing("web1", error("NO_NETWORK"))

    assert errorcodes.value_or(None, Vanishing("web1").read, "NO_NETWORK") == "WEB1"
    assert errorcodes.value_or(None, missing_network.read, "NO_NETWORK") is None
    with pytest.raises(libvirt.libvirtError):
        errorcodes.value_or(None, missing_network.read, "NO_DOMAIN")


@pytest.mark.parametrize("code", ["NO_DOMAIN", "OPERATION_INVALID"])
def test_an_object_that_vanishes_while_it_is_read_is_left_out(code):
    objects = [Vanishing("web1"), Vanishing("web2", error(code)), Vanishing("web3")]

    rows = errorcodes.read_existing(objects, Vanishing.read)

    assert dict(rows) == {"web1": "WEB1", "web3": "WEB3"}


def test_other_errors_are_raised():
    pools = [Vanishing("a", error("NO_STORAGE_POOL"))]

    with pytest.raises(libvirt.libvirtError):
        list(errorcodes.read_existing(pools, Vanishing.read))
    assert list(errorcodes.read_existing(pools, Vanishing.read, "NO_STORAGE_POOL")) == []
