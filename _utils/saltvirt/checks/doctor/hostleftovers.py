"""The kinds of leftovers that concern one host alone, for that host and for the master."""

from collections.abc import Mapping
from dataclasses import dataclass

# Files that were written to since then are not judged; an authorization is valid no longer.
QUIET_S, TOKEN_S = 3600, 24 * 3600


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """
    A kind of leftover.

    what
        The problem; ``{}`` is the subject.
    mend
        What the host does with ``fix=True``; empty if the operator has to act.
    fix
        What the operator does; ``{host}`` and ``{subject}`` are arguments of a shell.
    """

    what: str
    mend: str = ""
    fix: str = ""


# By check; its finder and its mender on the host are in host/localleftovers.py.
KINDS: Mapping[str, Kind] = {
    "unfinished": Kind(
        what="a build or a purge of VM {}, or the move of a disk of it, was cut off",
        mend="settles it: what is defined stays; recorded files of what is not go into the trash",
    ),
    "lock": Kind(what="{} is a lock that no process holds", mend="removes it"),
    "download": Kind(what="{} is a part of an abandoned download", mend="removes it"),
    "token": Kind(
        what="{} is a token of an authorization that was never used, and is worth nothing",
        mend="removes it",
    ),
    "mark": Kind(what="{} is a mark of a build that is on no record", mend="removes the mark"),
    "trash": Kind(
        what="{} is in the trash without a record, so nothing empties it",
        fix="on {host}: move what is needed back, then rm -r {subject}",
    ),
    "pool": Kind(
        what="pool {} was made for moves, and no move that is coming needs it",
        mend="ends it; files stay",
    ),
    "network-file": Kind(
        what="{} is a part of a file of a bridge or a firewall, and its writer has died",
        mend="removes it",
    ),
    "firewall": Kind(
        what="{} is half of a firewall: its rules or its unit are missing",
        fix="salt {host} state.apply hypervisor.firewall writes both anew; if these rules are not "
        "wanted, on {host}: rm {subject}",
    ),
}
