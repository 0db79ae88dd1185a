"""What the pages of sizes and of ISO installs have their readers type succeeds."""

import pytest
from cloudkit import TINY, how_to


@pytest.fixture
def web(clean):
    """A tiny guest on hyper1."""
    assert clean.local("hyper1", "virt.init", "web1", "1", "96", TINY, "seed=False") is True
    yield clean
    clean.purge_all()


def followed(cloud, commands):
    """Run the commands of a page."""
    for program, *words in commands:
        done = cloud.command(program, *words)
        assert done.code == 0, done.out + done.err
        assert done.traceback == []


def test_the_page_about_sizes_is_followed(web):
    followed(web, [words for words in how_to("resize.md")])

    assert "<vcpu placement='static'>4</vcpu>" in web.sh("hyper1", "virsh dumpxml --inactive web1")


def test_the_page_about_isos_is_followed(web):
    web.sh("hyper1", "mkdir -p /srv/iso && truncate -s 1M /srv/iso/debian.iso")

    followed(web, [words for words in how_to("iso-installs.md")])

    drive = web.sh("hyper1", "virsh domblklist --details inst1").split("cdrom")[1].split()
    assert drive[:2] == ["hda", "-"]
    web.sh("hyper1", "rm -r /srv/iso")
