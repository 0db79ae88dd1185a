"""What the index of a host's files says of a file that nothing needs."""

from saltvirt.storage import policies
from saltvirt.storage.verdict import Verdict


def free(path):
    """Return the verdict on a file that may go."""
    return Verdict(path=str(path), policy=policies.DELETE)
