"""libvirt's own errors, raised by the stand-in, and those that a test plants."""

import contextlib

import libvirt

_DOMAIN = 20  # libvirt: VIR_FROM_DOMAIN
_ERROR = 2  # libvirt: VIR_ERR_ERROR
# What a test has planted for the job that is being done: {libvirt's call: text}.
_planted = {}


def refusal(code, text):
    """Return libvirt's error with one of its codes, named without VIR_ERR_."""
    error = libvirt.libvirtError(text)
    error.err = (getattr(libvirt, f"VIR_ERR_{code}"), _DOMAIN, text, _ERROR, text, None, None, 0, 0)
    return error


@contextlib.contextmanager
def planted(errors):
    """Have calls fail, by their names, until the block ends."""
    _planted.update(errors)
    try:
        yield
    finally:
        for name in errors:
            _planted.pop(name, None)


def check(call):
    """Raise what is planted for a call of libvirt's."""
    if call in _planted:
        raise refusal("OPERATION_FAILED", f"operation failed: {_planted[call]}")


class Refusing:
    """Whatever is not defined is refused, as a driver refuses what it lacks."""

    def __getattr__(self, name):
        """Return a call that fails with VIR_ERR_NO_SUPPORT."""
        if name.startswith("_"):
            raise AttributeError(name)

        def refused(*_words, **_options):
            text = "this function is not supported by the connection driver: "
            raise refusal("NO_SUPPORT", f"{text}{name}")

        return refused
