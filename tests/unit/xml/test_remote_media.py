"""A cdrom's medium may be at a URL, which QEMU itself fetches."""

import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.core.options import config
from saltvirt.vm import spec

HOST = config.HostSettings()


def medium(url, device="cdrom"):
    """Return the remote source of the medium of a call."""
    options = {"disks": [{"name": "cd", "device": device, "source_file": url}]}
    return spec.deployment(HOST, "web1", 1, 64, options).vm.disks[-1].elsewhere


# As templates/virt/libvirt_disks.jinja of 3006.25 wrote it: the path with its slash.
@pytest.mark.parametrize(
    ("url", "source", "host"),
    [
        ("http://w/a.iso", {"protocol": "http", "name": "/a.iso"}, {"name": "w"}),
        (
            "ftp://w:2121/d/a.iso?x=1",
            {"protocol": "ftp", "name": "/d/a.iso", "query": "x=1"},
            {"name": "w", "port": "2121"},
        ),
        ("https://[2001:db8::1]/a", {"protocol": "https", "name": "/a"}, {"name": "2001:db8::1"}),
        ("ftps://w/a", {"protocol": "ftps", "name": "/a"}, {"name": "w"}),
        ("tftp://w/a", {"protocol": "tftp", "name": "/a"}, {"name": "w"}),
    ],
)
def test_a_url_is_where_the_medium_is(url, source, host):
    source_of_medium = medium(url)

    assert (source_of_medium.type, source_of_medium.source, source_of_medium.hosts) == (
        "network",
        source,
        (host,),
    )


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("nbd://w/a", "nbd://; one of http, https, ftp, ftps, tftp"),
        ("http://u:secret@w/a", "has a user or a password"),
        ("http://w/", "lacks a host or a path"),
        ("http:///a", "lacks a host"),
        ("http://w:x/a", "is not a URL"),
    ],
)
def test_a_url_that_qemu_could_not_fetch_is_refused(url, reason):
    with pytest.raises(BadArgument, match=reason) as excinfo:
        medium(url)
    assert "secret" not in str(excinfo.value)


def test_a_disk_is_not_a_medium():
    with pytest.raises(BadArgument, match="only a cdrom can be; a disk is made of image="):
        medium("http://w/a.iso", "disk")
