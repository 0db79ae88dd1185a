"""Key pairs that were made once: making one takes longer than most tests that need it."""

import functools
import multiprocessing

from saltvirt.core.crypto import keypair

_generate = keypair.generate
# Processes that a test starts, and kills, take from the same row: no two get the same pair.
_taken = multiprocessing.get_context("fork").Value("i", 0)


@functools.cache
def _nth(number):
    return _generate()


def begin(ahead=0):
    """Begin the row anew, for another test, with some pairs that are there before one forks."""
    _taken.value = 0
    for number in range(ahead):
        _nth(number)


def another():
    """Return the next pair of the row as ``keypair.generate`` does: in a test, none comes twice."""
    with _taken.get_lock():
        number, _taken.value = _taken.value, _taken.value + 1
    return _nth(number)


@functools.cache
def named(name):
    """Return the pair of a name, which is in no row."""
    return _generate()
