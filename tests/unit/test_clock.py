"""Nothing about a build or a move is decided by the clock: it may be moved by hours at any time."""

import ast
from pathlib import Path

import saltvirt

HOME = Path(saltvirt.__file__).parent
# Who reads it, and what for: to be shown, the formats of older versions, ages of lost parts of
# downloads, how long a URL or a certificate is good for.
READERS = {
    "records.py",
    "ops/legacy.py",
    "ops/migration/legacy.py",
    "image/cache.py",
    "files.py",
    "fleet/authorization.py",
    "pki/store.py",
}
CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.datetime.now", "datetime.utcnow"}


def _reads(path):
    calls = (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
    return any(ast.unparse(call.func) in CLOCKS for call in calls)


def test_only_who_is_listed_reads_the_clock():
    found = {str(path.relative_to(HOME)) for path in HOME.rglob("*.py") if _reads(path)}

    assert found == READERS


def test_when_a_record_began_is_only_shown():
    # The one puts it into a text, the other passes it on; all others get that text.
    readers = {
        str(path.relative_to(HOME))
        for path in HOME.rglob("*.py")
        if any(
            isinstance(node, ast.Attribute) and node.attr == "since"
            for node in ast.walk(ast.parse(path.read_text()))
        )
    }
    assert readers == {"records.py", "ops/migration/state.py"}
