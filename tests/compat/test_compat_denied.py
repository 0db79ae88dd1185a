"""
Whom libvirt does not let do it is told so: functions by one line, states by ``result: False``.

Nothing of that is played: libvirt's own read-only connection refuses, and the kernel refuses a
socket to a process of ``nobody``.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest
from compatkit import ODD, ask_denied, did, step
from compatrows import ROWS

READ_ONLY = "operation forbidden: "
SHUT_OUT = "Permission denied"
KINDS = ("modules/virt.", "states/virt.")
# These ask libvirt nothing, or answer what they found without it.
WITHOUT_LIBVIRT = {"modules/virt.get_profiles", "modules/virt.virt_type"}
NAME = "web1"
# Functions that are not 3006's.
NEW = [
    did("purge", "off1"),
    did("clone", "off1", "new", seed=False),
    did("init", "new", 1, 64, disk=None, nic=None, seed=False, start=False),
    did("guest_info", NAME),
    did("guest_exec", NAME, ["true"]),
    did("volume_resize", "default", "spare.raw", 8),
    did("volume_clone", "default", "spare.raw", "other.raw"),
    did("volume_wipe", "default", "spare.raw"),
    did("volume_download", "default", "spare.raw", "/FOLDER/srv/spare"),
    did("volume_upload", "default", "spare.raw", "/FOLDER/web1.qcow2"),
    did("migrate", NAME, "elsewhere"),
    did("host_info"),
    did("presence", NAME),
    did("get_hypervisor"),
    *(
        step(f"states/virt.{name}", "off1")
        for name in ("absent", "running", "network_absent", "pool_absent")
    ),
]
CALLS = {}


def called(one):
    """Return what a call is called here: there is one of each function."""
    return f"{one['function']}{' test=True' if one['test'] else ''}"


for one in [*NEW, *(row.steps[-1] for row in ROWS if len(row.steps) == 1 and not row.fails)]:
    is_file = any(str(word).startswith("/nowhere") for word in one["args"])
    if one["function"].startswith(KINDS) and ODD not in one["args"] and not is_file:
        CALLS.setdefault(called(one), one)


@pytest.fixture(scope="module")
def asked(tmp_path_factory):
    """What each gets: ``{who: {call: outcome}}``."""
    folder = tmp_path_factory.mktemp("denied")
    # Somebody else has to reach it.
    for part in (folder, *folder.parents[:2]):
        part.chmod(0o755)
    kinds = ("all", "read only", "shut out")
    with ThreadPoolExecutor(len(kinds)) as pool:
        said = pool.map(lambda how: ask_denied(folder, how, [*CALLS.values()]), kinds)
        return {
            how: dict(zip(CALLS, outcomes, strict=True))
            for how, outcomes in zip(kinds, said, strict=True)
        }


def is_told(outcome, words):
    """Check that an outcome says in one line that it was refused."""
    if "error" in outcome:
        assert words in outcome["error"] and "\n" not in outcome["error"], outcome
        # What a state or a formula of somebody else's catches.
        assert outcome["kind"] in ("VirtError", "LibvirtRefused"), outcome
        return
    said = outcome["return"]
    assert isinstance(said, dict) and said.get("result") is False, outcome
    assert words in said["comment"], outcome


@pytest.mark.parametrize("call", CALLS)
def test_whom_libvirt_lets_only_read_changes_nothing_and_is_told(asked, call):
    usual, outcome = asked["all"][call], asked["read only"][call]

    assert outcome["effects"] == {}
    if usual["effects"] or READ_ONLY in str(outcome):
        is_told(outcome, READ_ONLY)
    else:
        assert outcome.keys() == usual.keys()


@pytest.mark.parametrize("call", CALLS)
def test_who_may_not_reach_libvirt_is_told(asked, call):
    function, outcome = CALLS[call]["function"], asked["shut out"][call]
    if function in WITHOUT_LIBVIRT:
        assert "return" in outcome
        return

    is_told(outcome, SHUT_OUT)
