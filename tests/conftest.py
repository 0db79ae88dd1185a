"""Options of the whole suite."""

import gc
import signal

from hypothesis import settings
from salt._logging import shutdown_temp_handler


def pytest_addoption(parser):
    """Add ``--regenerate``: write the golden files anew instead of comparing with them."""
    parser.addoption("--regenerate", action="store_true", help="write the golden files anew")


# All that is collected stays to the end, and is so much that looking through it for garbage, while
# it is collected and again and again during the tests, takes seconds of each process.
gc.disable()


def pytest_collection_finish():
    """Leave what was collected out of the search for garbage, which begins here."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_sessionfinish():
    """Look for garbage once at the end, where pytest does it twice among all that there is."""
    gc.collect()
    gc.freeze()


def pytest_configure():
    """Have Salt not keep its log for a console, and signals heard by what the tests start."""
    # It would write to one that pytest has closed.
    shutdown_temp_handler()
    # A shell that runs scripts has what it starts in the background ignore SIGINT; nohup, SIGHUP.
    for number, default in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)
    # How long a test may take does not depend on how busy the machine is.
    settings.register_profile("patient", deadline=None)
    settings.load_profile("patient")
