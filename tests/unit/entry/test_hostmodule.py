"""The shared parts of the functions of execution modules, and how Salt sees them."""

import inspect

import asloaded
import pytest
from saltvirt.core.errors import BadArgument, NoSuchVm, VirtError
from saltvirt.entry.host import hostmodule
from saltvirt.libvirt import connect
from saltvirt.placement.answers import ASK
from saltvirt.storage.sharing import AskAll


@pytest.fixture
def namespace():
    """The names that Salt's loader sets, for a host with libvirt's test driver."""
    opts = {"test": False, "virt": {"connection": {"uri": "test:///default"}, "trash_days": 3}}
    return {
        "__opts__": opts,
        "__pillar__": {},
        "__grains__": {},
        "__salt__": {},
        "__context__": {},
    }


@pytest.fixture
def module(namespace):
    """The shared parts of the functions of one file."""
    return hostmodule.HostModule(namespace)


def test_a_call_has_a_connection_and_the_options_of_the_host(module):
    with module.opened("virt.f", {}) as (conn, settings):
        assert conn.getURI() == "test:///default"
        assert settings.trash_days == 3
    with module.connection("virt.f", {}, readonly=True) as conn:
        assert conn.listAllDomains()
    assert module.context(asks_master=True).settings == module.settings()


@pytest.mark.parametrize("method", ["opened", "connection"])
def test_a_misspelt_keyword_is_refused(module, method):
    with (
        pytest.raises(BadArgument, match=r"virt\.f.*conection"),
        getattr(module, method)("virt.f", {"conection": "test:///default"}),
    ):
        pass


def test_the_name_of_a_vm_that_is_missing_is_in_the_error(module):
    with pytest.raises(NoSuchVm), module.connection("virt.f", {}) as conn:
        connect.domain(conn, "web1")


def test_only_an_order_learns_which_files_other_hosts_may_use(module):
    def refuse(_conn, _settings, _other_hosts):
        raise AskAll("ask all hosts", ["/srv/a"])

    with pytest.raises(AskAll):
        module.run_or_ask("virt.f", {}, refuse)
    assert module.run_or_ask("virt.f", {"replies": {}}, refuse) == {ASK: ["/srv/a"]}

    def free(_conn, _settings, other_hosts):
        return sorted(other_hosts.free)

    assert module.run_or_ask("virt.f", {"replies": {"free": ["/srv/a"]}}, free) == ["/srv/a"]


def test_an_order_gets_its_error_as_data(module, namespace):
    @module.reports_errors
    def fail(name, **kwargs):
        """Fail."""
        raise VirtError(f"{name} failed")

    with pytest.raises(VirtError, match="a failed"):
        fail("a")
    assert namespace["__context__"] == {}
    assert fail("a", report=True)["error"] == "a failed"
    assert namespace["__context__"] == {"retcode": 1}
    assert str(inspect.signature(fail)) == "(name, **kwargs)" and fail.__doc__ == "Fail."


def test_the_text_of_a_file_is_read(tmp_path):
    path = tmp_path / "a.xml"
    path.write_text("<a/>")

    assert hostmodule.read_file("path", str(path)) == "<a/>"
    for wrong in (str(tmp_path / "b.xml"), str(tmp_path)):
        with pytest.raises(BadArgument, match="path: "):
            hostmodule.read_file("path", wrong)


def test_a_file_is_loaded_only_where_libvirt_is(monkeypatch):
    assert asloaded.module("_modules/virt_pool.py").__virtual__() is True
    monkeypatch.setattr(connect, "why_missing", lambda: "no libvirt")

    assert asloaded.module("_modules/virt_pool.py").__virtual__() == (False, "no libvirt")
    assert asloaded.module("_modules/seed.py").__virtual__() is True
