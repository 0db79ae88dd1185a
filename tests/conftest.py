"""Options of the whole suite."""

import signal

from salt._logging import shutdown_temp_handler


def pytest_addoption(parser):
    """Add ``--regenerate``: write the golden files anew instead of comparing with them."""
    parser.addoption("--regenerate", action="store_true", help="write the golden files anew")


def pytest_configure():
    """Have Salt not keep its log for a console, and Ctrl-C heard by what the tests start."""
    # It would write to one that pytest has closed.
    shutdown_temp_handler()
    # A shell that runs scripts has what it starts in the background ignore it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
