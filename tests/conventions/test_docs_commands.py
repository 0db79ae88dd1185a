"""Each command that a page shows is run by a test of the lab, or marked with why none runs it."""

import commandskit
import notrun
import pytest
from commandskit import ROOT, Form, form, problems, split

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
OURS = ("virt", "seed", "guestfs", "qemu_nbd", "qemu_img")
KNOWN = {Form("salt-run", "virt.init", frozenset({"host"})), Form("make", "demo", frozenset())}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_what_a_page_has_its_readers_type_is_run_or_marked(page):
    assert list(problems(page.name, page.read_text(), commandskit.ran())) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_of_ours_in_a_sentence_are_run_with_any_arguments(page):
    known = {(one.program, one.function) for one in commandskit.ran()}
    forms = [form(words) for words in commandskit.inline(page.read_text())]
    ours = {(f.program, f.function) for f in forms if f.function.partition(".")[0] in OURS}

    assert ours - known == set()


def test_commands_of_others_in_a_sentence_are_run_or_listed_with_why():
    known = {(one.program, one.function) for one in commandskit.ran()}
    said = {
        (f.program, f.function)
        for page in PAGES
        for f in map(form, commandskit.inline(page.read_text()))
        if f.function and f.function.partition(".")[0] not in OURS
    }

    assert {" ".join(one) for one in said - known} == set(notrun.WHY)


@pytest.mark.parametrize(
    ("block", "wrong"),
    [
        ("```sh\nsalt-run virt.init web1 host=hyper1\n```", None),
        ("```sh\nsalt-run virt.init web1 hots=hyper1\n```", "page:2: salt-run virt.init"),
        ("```sh\nsalt-run virt.init web1 dry_run=True\n```", "no test runs it"),
        ("```sh\nmake demo && make bench\n```", "page:2: make demo && make bench"),
        ("```\n$ salt-run virt.int web1\nweb1 is on hyper1\n```", "page:2: salt-run virt.int"),
        ("```\nsalt-run virt.int web1\nweb1 is on hyper1\n```", "page:2: salt-run virt.int"),
        ("   ```sh\n   virsh list\n   ```", "page:2: virsh list"),
        ("```yaml\nsalt-run: virt.int\n```", None),
        ("<!-- not run: needs the network -->\n```sh\nvirsh list\n```", None),
        ("<!-- not run: needs the network -->\n\nRead on.\n\n```sh\nvirsh list\n```", "no test"),
        ("<!-- not run:  -->\n```sh\nvirsh list\n```", "no test runs it"),
        ("<!-- not run: needs time -->\n```sh\nmake demo\n```", "tests run it"),
    ],
)
def test_a_planted_page_is_found_out(block, wrong):
    found = list(problems("page", f"# Page\n{block}\n", KNOWN))[:1]
    found = [text.replace("page:3", "page:2") for text in found]

    assert len(found) == (wrong is not None)
    assert not found or wrong in found[0]


@pytest.mark.parametrize(
    ("line", "forms"),
    [
        ("salt 'hyper*' virt.update web1 cpu=2  # more", [("salt", "virt.update", {"cpu"})]),
        ("salt-call virt.update web1 cpu=2 --out=json", [("salt", "virt.update", {"cpu"})]),
        ("salt -t 60 h state.single virt.keys k", [("salt", "state.single virt.keys", set())]),
        ("virsh -q -c URI dumpxml --inactive a >b", [("virsh", "dumpxml", {"--inactive"})]),
        (
            "systemctl daemon-reload; a=b salt-key -a x",
            [("systemctl", "daemon-reload", set()), ("salt-key", "", {"-a"})],
        ),
        ("apt-get install -y one two", [("apt-get", "install one two", set())]),
    ],
)
def test_a_command_has_the_form_of_what_it_does(line, forms):
    found = [form(words) for words in split(line)]

    assert found == [Form(program, name, frozenset(named)) for program, name, named in forms]


@pytest.mark.parametrize(
    ("source", "known"),
    [
        ('cloud.run("virt.init", name, f"host={host}")', ("salt-run", "virt.init", {"host"})),
        ('W = ["virt.init", "host=a"]\ncloud.begin(*W)', ("salt-run", "virt.init", {"host"})),
        ('cloud.salt("hyper1", "virt.list", "a=1")', ("salt", "virt.list", {"a"})),
        ('cloud.local(host, "virt.start", VM)', ("salt", "virt.start", set())),
        ('cloud.command("salt-run", "virt.list")', ("salt-run", "virt.list", set())),
        ('cloud.service("m", "salt-master", "stop")', ("systemctl", "stop salt-master", set())),
        ('cloud.sh(host, f"virsh -q define {path}; true")', ("virsh", "define", set())),
        ('saltd.salt(lab, "salt-key", ["-y", "-a", name])', ("salt-key", "", {"-a"})),
        ('assert "salt-run virt.purge web1" in said', None),
    ],
)
def test_what_a_test_types_is_found_in_its_source(tmp_path, source, known):
    path = tmp_path / "test_planted.py"
    path.write_text(source)
    found = {form(words) for words in commandskit.Typed(path).commands()}

    if known:
        assert Form(*known[:2], frozenset(known[2])) in found
    else:
        assert "salt-run" not in {one.program for one in found}
