"""Minimum versions of Python and Salt, checked before any newer syntax is read."""

# Python 3.6 must be able to read this file and the package's own: some Salts of SLES run on it.
PYTHON = (3, 10)
SALT = 3006


def why_not(python: "tuple[int, ...]", salt_release: "int | None") -> "str | None":
    """
    Return the reason why this project cannot be loaded, or None.

    python
        The version of the running Python, such as ``(3, 9, 2)``.
    salt_release
        Salt's, such as 3006; None where no Salt is loaded.
    """
    if python[:2] < PYTHON:
        return (
            f"Salt Virt needs Python {PYTHON[0]}.{PYTHON[1]} or newer, and the Salt here runs on "
            f"{python[0]}.{python[1]}: install Salt's own packages, {SALT} or newer"
        )
    if salt_release is not None and salt_release < SALT:
        return f"Salt Virt needs Salt {SALT} or newer, here is {salt_release}"
    return None
