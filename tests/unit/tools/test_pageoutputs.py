"""The comparison of pages with real output ignores varying parts."""

import pageoutputs
import pytest

SHOWN = """\
HYPERVISOR  CPUS     MEMORY  VMS  TYPE  STATE
hyper1       8/8  23.0/23.0    0  qemu  up
"""
PAGE = f"""\
# Page

<!-- output: salt-run virt.host_info -->
```text
{SHOWN}```

```sh
salt-run virt.host_info
```
"""


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A folder of pages with one of them."""
    (tmp_path / "page.md").write_text(PAGE)
    monkeypatch.setattr(pageoutputs, "DOCS", tmp_path)
    return tmp_path / "page.md"


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("hyper1       8/8  23.0/23.0    0  qemu  up", "hyper1   16/16  1.5/125.0  0  kvm  up"),
        ("hyper3: does not answer, for 3 min", "hyper3: does not answer, for 12 s"),
        ("its minion answered after 241.3 s", "its minion answered after 9 s"),
        ("web1  10.77.1.4*  1 d", "web1  192.0.2.30*  5 min"),
        ("since 2026-11-28 01:46:03", "since 2027-01-02T10:00:00.123"),
        ("52:54:00:77:01:01", "52:54:00:00:00:ff"),
        ("image 0123456789ab", "image ffffffffffff"),
        (
            "a: Fetching 100 % of 385.0M\nb",
            "a: Fetching 9 % of 1.0M\na: Fetching 100 % of 1.0M\nb",
        ),
    ],
)
def test_varying_parts_are_no_difference(shown, printed):
    assert pageoutputs.constant(shown) == pageoutputs.constant(printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("web1  hyper1  would be reset", "web1  hyper1  would be stopped"),
        ("salt-key -d hyper3", "salt-key -d db1"),
        ("step 1\nstep 2", "step 2\nstep 1"),
        ("2 of 2 hosts fit", "1 of 2 hosts fit"),
    ],
)
def test_other_parts_are_a_difference(shown, printed):
    assert pageoutputs.constant(shown) != pageoutputs.constant(printed)


def test_an_output_is_replaced_only_for_other_differences(page):
    command = "salt-run virt.host_info"

    pageoutputs.compare("page.md", command, SHOWN.replace("8/8", "4/4"), is_regenerated=True)
    assert page.read_text() == PAGE
    changed = SHOWN.replace("up", "asleep")
    with pytest.raises(AssertionError, match="pytest --regenerate"):
        pageoutputs.compare("page.md", command, changed)
    pageoutputs.compare("page.md", command, changed, is_regenerated=True)
    assert page.read_text() == PAGE.replace(SHOWN, changed)


def test_a_block_has_a_mark_a_kind_and_a_file(page):
    shown, typed = pageoutputs.blocks("page.md")
    (file,) = pageoutputs.blocks_of("```yaml\n# /srv/pillar/top.sls; if you have one\na: b\n```\n")

    assert (shown.mark, shown.words, shown.kind) == ("output", "salt-run virt.host_info", "text")
    assert (typed.mark, typed.kind, typed.body) == ("", "sh", "salt-run virt.host_info\n")
    assert file.file == "/srv/pillar/top.sls"
