"""Options of the whole suite."""


def pytest_addoption(parser):
    """Add ``--regenerate``: write the golden files anew instead of comparing with them."""
    parser.addoption("--regenerate", action="store_true", help="write the golden files anew")
