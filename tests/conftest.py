"""Options of the whole suite."""

from salt._logging import shutdown_temp_handler


def pytest_addoption(parser):
    """Add ``--regenerate``: write the golden files anew instead of comparing with them."""
    parser.addoption("--regenerate", action="store_true", help="write the golden files anew")


def pytest_configure():
    """Have Salt not keep its log for a console: it would write to one that pytest has closed."""
    shutdown_temp_handler()
