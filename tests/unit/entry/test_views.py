"""The view of each answer: sentences and tables; the answers stay unchanged."""

import ast
from pathlib import Path

import pytest
from saltvirt.entry import views

ROOT = Path(__file__).resolve().parents[3]
ALLOWED = {
    "hypervisors": {"hyper1": {"by": "virt.allow", "fingerprint": "aa"}},
    "disallowed": ["hyper9"],
    "candidates": {"hyper2": {"why": "says so", "fingerprint": "bb", "vm_on": ["hyper1"]}},
    "waiting": {"hyper3": "cc"},
    "others": {"hyper4": "dd"},
    "odd_ids": {"hyper;5\n": "no host is called so"},
    "allow_them": "salt-run virt.allow hyper2",
}
TRASH = {
    "vm": "web1",
    "uuid": "u",
    "since": "2026-11-20T10:00:00",
    "until": "2026-11-27T10:00:00",
    "why": "virt.purge",
    "bytes": 2**30,
    "files": ["/srv/a.qcow2"],
    "volumes": [],
    "definition": "<domain/>",
    "away": [],
}
IMAGE = {"path": "/srv/g.qcow2", "os": "Debian 12", "has_minion": True, "has_cloud_init": True}
CERTIFICATE = {
    "host": "hyper1",
    "purpose": "server",
    "serial": 17,
    "not_after": "2027-01-01",
    "signer": "libvirt",
    "days_left": 35,
    "state": "good",
}


@pytest.mark.parametrize(
    ("name", "answer", "arguments", "sentences"),
    [
        (
            "virt.allow",
            {"allowed": ["hyper1"]},
            {"hosts": ("hyper1",)},
            ["hyper1 is a hypervisor of this master now"],
        ),
        (
            "virt.disallow",
            {
                "disallowed": ["h1"],
                "revoked": [3],
                "told": {"h2": "done"},
                "last_seen": {"h1": ["a"]},
            },
            {},
            [
                "h1 is no hypervisor of this master any more",
                "revoked: certificates 3",
                "h2: done",
                "h1 had these VMs when it was last asked: a; no command of this master reaches "
                "them any more",
            ],
        ),
        (
            "virt.trash_restore",
            {"hyper1": {"files": ["/srv/a"], "definition": None}},
            {},
            ["hyper1: /srv/a is back"],
        ),
        (
            "virt.image_pull",
            {"hyper1": "0123456789abcdef"},
            {"image": "salt://a"},
            ["hyper1 has salt://a (0123456789ab)"],
        ),
        (
            "virt.image_build",
            {"hyper1": IMAGE},
            {},
            ["hyper1: /srv/g.qcow2 is built: Debian 12 with a minion and cloud-init"],
        ),
        (
            "virt_image.minion_packages",
            {"folder": "/srv/m", "kind": "onedir", "version": "3008", "fetched": ["a"], "kept": []},
            {},
            ["Salt 3008 for guests (onedir) is in /srv/m", "  fetched: a"],
        ),
        ("virt.next_host", "hyper1", {}, ["hyper1"]),
        ("virt.settle", {"settled": {}}, {}, ["nothing is left to settle"]),
        (
            "virt.settle",
            {"settled": {"web1": "has moved to hyper2"}, "unreachable": ["hyper3"]},
            {},
            ["web1: has moved to hyper2", "hyper3: does not answer"],
        ),
        (
            "virt.maintenance",
            {"hyper1": True},
            {},
            ["hyper1 is in maintenance: it gets no new VMs; its own VMs stay"],
        ),
        ("virt_pki.renew", {"hyper1": "renewed"}, {}, ["hyper1: renewed"]),
        ("virt_pki.revoke", {"revoked": [5]}, {}, ["revoked: certificates 5"]),
        (
            "virt_pki.rotate_ca",
            {"rotated": ["h1", "h2"]},
            {},
            ["the authority is new; hosts with certificates of it: h1, h2"],
        ),
    ],
)
def test_the_view_of_a_command_reports_its_outcome(name, answer, arguments, sentences):
    assert views.find(name, answer, arguments) == {"said": sentences}


@pytest.mark.parametrize(
    ("name", "answer", "rows"),
    [
        (
            "virt.allow",
            ALLOWED,
            [
                ["hyper1", "hypervisor", "virt.allow", "aa"],
                ["hyper2", "candidate", "says so; but it is a VM on hyper1", "bb"],
                ["hyper3", "waiting", "its key waits for: salt-key -a", "cc"],
                ["hyper4", "other", "", "dd"],
            ],
        ),
        (
            "virt.find",
            {
                "web1": {
                    "hosts": {"h1": "running"},
                    "traces": [],
                    "may_have": {"h2": "does not answer"},
                    "order": None,
                }
            },
            [
                ["web1", "h1", "running"],
                ["web1", "h2", "was there when it was last asked; does not answer"],
            ],
        ),
        (
            "virt.find",
            {"a": {"hosts": {}, "traces": [], "may_have": {}, "order": "building"}},
            [
                ["a", None, "no host has it"],
                ["a", None, "a command of this master is at work: building"],
            ],
        ),
        (
            "virt.trash",
            {"hyper1": {"e1": TRASH}},
            [["web1", "hyper1", "e1", 2**30, TRASH["since"], TRASH["until"], "/srv/a.qcow2"]],
        ),
        ("virt.trash_empty", {"h": {"e1": 5}}, [["h", "e1", 5]]),
        ("virt.image_prune", {"h": {"0123456789abcdef": 5}}, [["h", "0123456789ab", 5]]),
        (
            "virt_pki.list",
            [CERTIFICATE],
            [["hyper1", "server", "good", 35, "2027-01-01", "libvirt", "17"]],
        ),
        (
            "virt.list",
            {"west/h1": {"running": ["b", "a"]}, "last_seen": {"h2": ["c"]}},
            [
                ["a", "west/h1", "running"],
                ["b", "west/h1", "running"],
                ["c", "h2", "last seen there"],
            ],
        ),
    ],
)
def test_rows_are_a_table(name, answer, rows):
    view = views.find(name, answer, {})

    assert view["rows"] == rows and {len(row) for row in rows} == {len(view["titles"])}
    assert set(view["sizes"]) <= set(view["titles"])


def test_an_empty_table_is_a_sentence():
    assert views.find("virt.trash", {}, {})["said"] == ["the trash is empty"]
    assert views.find("virt.trash", {"unreachable": ["h"]}, {})["said"][1] == "h: does not answer"


PURGED = {
    "removed": ["/srv/seed"],
    "trashed": ["/srv/a.qcow2"],
    "left": {"/srv/b.iso": "it is a cdrom or floppy image"},
    "lost": ["the password of its display is not kept"],
    "entry": "web1-1",
    "until": "2026-12-05",
    "can_undo": True,
    "undo": "salt-run virt.undo web1",
}


def test_the_view_of_a_purge_shows_removed_and_kept_files_and_its_undo():
    answer = {"hyper1": {"web1": "purged"}}
    assert views.find("virt.purge", answer, {})["said"] == ["web1 on hyper1: purged"]

    sentences = views.find("virt.purge", {**answer, "details": {"web1": PURGED}}, {})["said"]

    assert sentences == [
        "web1 on hyper1: purged",
        "  removed: /srv/seed",
        "  in the trash until 2026-12-05: /srv/a.qcow2",
        "  stays: /srv/b.iso: it is a cdrom or floppy image",
        "  not kept: the password of its display is not kept",
        "  undo: salt-run virt.undo web1",
    ]
    purged_for_good = {**PURGED, "trashed": [], "until": None, "can_undo": False, "undo": None}
    sentences = views.find("virt.purge", {**answer, "details": {"web1": purged_for_good}}, {})[
        "said"
    ]
    assert sentences[-1] == "  this cannot be undone"


@pytest.mark.parametrize("is_dry", [True, False])
def test_the_view_of_an_undo_shows_what_is_restored_and_what_is_not(is_dry):
    answer = {"name": "my vm", "host": "hyper1", "uuid": "u", "files": ["/srv/a"], "has_key": True}
    answer |= {"autostart": True, "lost": ["its seed is not kept"]}

    sentences = views.find("virt.undo", answer, {"dry_run": is_dry})["said"]

    restored_lines = [
        "  /srv/a",
        "  it starts with its host, as before",
        "  not back: its seed is not kept",
    ]
    if is_dry:
        assert sentences == ["my vm would be back on hyper1", *restored_lines]
    else:
        key = "  the master accepts the key of its minion again"
        start = "  start it: salt-run virt.start 'my vm'"
        assert sentences == ["my vm is back on hyper1, and is off", *restored_lines, key, start]


def test_the_trash_shows_how_each_entry_is_undone():
    entry = {**TRASH, "undo": "salt-run virt.undo web1"}

    view = views.find("virt.trash", {"hyper1": {"e1": entry}}, {})

    assert view["said"][0] == "web1: undo: salt-run virt.undo web1"


@pytest.mark.parametrize("answer", ["text", None, 5, {"hyper1": 3}, {"hyper1": {"e": {}}}])
def test_an_answer_of_another_shape_has_no_view(answer):
    """A cell of another release may send one; salt-run then shows it as plain lines."""
    assert views.find("virt.trash", answer, {}) is None
    assert views.find("virt.unknown", answer, {}) is None


def test_each_view_is_of_a_runner_function():
    names = set()
    for path in (ROOT / "_runners").glob("*.py"):
        tree = ast.parse(path.read_text())
        module = next(
            (
                node.value.value
                for node in tree.body
                if isinstance(node, ast.Assign) and node.targets[0].id == "__virtualname__"
            ),
            None,
        )
        names |= {
            f"{module}.{node.name.rstrip('_')}"
            for node in tree.body
            if isinstance(node, ast.FunctionDef)
        }

    assert set(views._VIEWS) <= names


def test_odd_ids_and_the_lack_of_hypervisors_are_reported_below_the_table():
    answer = {**ALLOWED, "hypervisors": {}}

    sentences = views.find("virt.allow", answer, {})["said"]

    assert sentences[0] == "there are no hypervisors yet"
    assert "an id of a stranger, not of a host: hyper;5\\n (no host is called so)" in sentences
