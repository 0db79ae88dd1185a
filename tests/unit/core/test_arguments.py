"""All arguments of users are checked before anything else happens."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from saltvirt.core import arguments, units
from saltvirt.core.errors import BadArgument, BadConfig, VirtError
from saltvirt.core.options import config
from saltvirt.libvirt import connect


@pytest.mark.parametrize(
    "name",
    ["../x", "", " ", "a b", "x" * 300, "-x", ".x", "x/y", "a..b", "x.", "é", "a\nb", "x\0", "a\n"],
)
def test_unsafe_and_ambiguous_names_are_refused(name):
    with pytest.raises(BadArgument) as refused:
        arguments.vm_name(name)

    assert str(refused.value).startswith("name: ")
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("name", [7, ["x"], True])
def test_a_name_that_is_not_text_is_refused(name):
    with pytest.raises(BadArgument, match="is not text"):
        arguments.vm_name(name)
    with pytest.raises(BadArgument, match="is missing"):
        arguments.vm_name(None)


@pytest.mark.parametrize("name", ["a", "centos1", "web-1.example.org", "A_b", "9", "x" * 63])
def test_usual_names_are_accepted(name):
    assert arguments.vm_name(name) == name


@given(st.text(max_size=80))
def test_no_accepted_name_can_be_a_path(name):
    try:
        arguments.vm_name(name)
    except BadArgument:
        return

    assert "/" not in name and "\0" not in name and ".." not in name and name.isascii()


@pytest.mark.parametrize("cpu", [0, -1, "two", 1.5, None, True, "", "1e400", float("nan"), [1]])
def test_a_wrong_number_of_cpus_is_refused_with_its_name(cpu):
    with pytest.raises(BadArgument, match="^cpu: "):
        arguments.vcpus(cpu)


@pytest.mark.parametrize("number", [2**53 + 1, str(2**53 + 1), 2**64 - 1, str(-(2**63)), 4.0, "4"])
def test_whole_numbers_of_any_size_are_accepted(number):
    assert arguments.whole_number("quota", number, least=-(2**63)) == int(number)


@pytest.mark.parametrize("number", [1.5, "1.5", "4.0", True, "", None, float("inf"), [4]])
def test_values_that_are_no_whole_numbers_are_refused(number):
    with pytest.raises(BadArgument, match="^quota: .* is not a whole number"):
        arguments.whole_number("quota", number)


@pytest.mark.parametrize("mem", [0, -512, "lots", None, True, "", "12x", [], "0", "-1g"])
def test_a_wrong_amount_of_memory_is_refused_with_its_name(mem):
    with pytest.raises(BadArgument, match="^mem: "):
        arguments.memory_mib(mem)


@pytest.mark.parametrize(
    ("mem", "mib"),
    [
        (512, 512),
        ("512", 512),
        ("2g", 2048),
        ("512 MiB", 512),
        ({"boot": "1g"}, 1024),
        ({"boot": 512, "max": "4g"}, 4096),
        (1024.0, 1024),
    ],
)
def test_memory_is_in_mib_without_a_unit(mem, mib):
    assert arguments.memory_mib(mem) == mib


def test_a_mapping_of_cpus_counts_with_its_maximum():
    assert arguments.vcpus({"maximum": 4, "current": 2}) == 4
    with pytest.raises(BadArgument, match="maximum"):
        arguments.vcpus({"current": 2})


def test_an_unknown_keyword_is_named_with_the_nearest_known_one():
    with pytest.raises(BadArgument, match="'enable_qcw'.*did you mean 'enable_qcow'"):
        arguments.refuse_unknown(["enable_qcw"], ["enable_qcow", "image"], "virt.init")


def test_keywords_that_salt_adds_to_a_call_are_known():
    arguments.refuse_unknown(["__pub_jid"], ["image"], "virt.init")


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, 2**20),
        ("1 MiB", 2**20),
        ("4g", 4 * 2**30),
        ("4GB", 4 * 10**9),
        ("1k", 1024),
        ("1.5g", 3 * 2**29),
        ("10b", 10),
        ("2TiB", 2 * 2**40),
        ("1P", 2**50),
        ("2EiB", 2**61),
        (".5g", 2**29),
    ],
)
def test_sizes_with_and_without_units(size, expected):
    assert units.size_bytes(size) == expected


@pytest.mark.parametrize("size", ["", "g", "-1", "1 parsec", True, None, {}, "1g1"])
def test_wrong_sizes_are_refused(size):
    with pytest.raises(BadArgument, match="is not a size"):
        units.size_bytes(size, "disk")


def test_sizes_read_as_people_write_them():
    assert [units.human(n) for n in (0, 1023, 2**20, 2 * 2**30)] == ["0B", "1023B", "1.0M", "2.0G"]


@pytest.mark.parametrize(
    "uri",
    [
        "qemu+ext:///system?command=/tmp/x",
        "QEMU+EXT://h/system",
        "remote+ext:///",
        "qemu+ssh://h/system?command=/tmp/x",
        "qemu+ssh://h/system?no_tty=1;Command=/tmp/x",
        "qemu+ssh://h/system?no_tty=1&c%6Fmmand=/tmp/x",
        "qemu+ssh://h/system?netcat=/tmp/x",
        "qemu+libssh2://h/system?known_hosts=/etc/passwd",
        "remote+unix:///?name=test:///etc/shadow",
        "test:///etc/shadow",
        "TEST:///etc/shadow",
        "test+unix:///etc/shadow",
        "qemu:///embed?root=/tmp/x",
        "qemu:///%65mbed",
        "qemu:///system?x",
        "qemu:///system?socket=/run/libvirt/../../tmp/x",
        "qemu:///system?socket=/run/libvirt/libvirt-sock&socket=/tmp/x",
        "qemu:///system?socket=/run/libvirt/libvirt-sock;command=/tmp/x",
        "qemu:///system?mode=direct%26command=/tmp/x",
        "qemu:///system?mode=other",
        "qemu:///system#x",
        "qemu:///system\n?command=/tmp/x",
        "qemu:///system ",
        "qemu+ssh://root@hyper2/system?socket=/x%3Btouch%20/tmp/x",
        "qemu+ssh://root@hyper2:2222/system?keyfile=/tmp/x&no_tty=1",
        "qemu+libssh://h/system?known_hosts_verify=ignore",
        "qemu+tls://[2001:db8::2]/system?pkipath=/tmp/x",
        "qemu+tls://hyper2/system",
        "qemu+tcp://127.0.0.1/system",
        "qemu://hyper2/system",
        "remote://hyper2/",
        "test+unix:///default",
        "test:///default?x",
        "/run/libvirt/libvirt-sock",
    ],
)
def test_a_callers_connection_runs_no_program_and_reads_no_file(uri):
    """The client of libvirt runs ``command`` as root, also for users who may only read."""
    with pytest.raises(BadArgument, match="^connection: ") as refused:
        arguments.connection(uri)

    assert "/tmp/x" not in str(refused.value)
    with pytest.raises(BadArgument):
        config.host_settings({}, connection=uri)
    # Only root writes the host's options.
    options = {"virt": {"connection": {"uri": uri}}}
    assert config.host_settings(options, connection=uri).uri == uri


@pytest.mark.parametrize(
    "uri",
    [
        "qemu:///system",
        "qemu:///session",
        "qemu+unix:///system?socket=/run/libvirt/libvirt-sock&mode=direct",
        "qemu:///system?socket=/run/libvirt/libvirt-sock-ro",
        "qemu+unix:///session",
        "test:///default",
        "an_alias",
    ],
)
def test_a_connection_with_only_a_host_is_accepted(uri):
    assert arguments.connection(uri) == uri
    assert config.host_settings({}, connection=uri).uri == uri


LISTED = "qemu+tls://hyper2.example.org/system"


@pytest.mark.parametrize("option", [LISTED, [LISTED, "qemu+ssh://root@h/system?keyfile=/etc/k"]])
def test_a_call_may_name_another_host_that_the_option_lists(option):
    """The URI must be exactly as listed: with an addition it is another URI."""
    options = {"virt": {"connections": option}}

    assert config.host_settings(options, connection=LISTED).uri == LISTED
    assert (
        config.connection_settings("virt.vm_state", {"connection": LISTED}, options, {}, {}).uri
        == LISTED
    )
    for uri in (f"{LISTED}?no_verify=1", LISTED.upper(), "qemu+tls://hyper3/system"):
        with pytest.raises(BadArgument, match="virt:connections of this host does not list"):
            config.host_settings(options, connection=uri)


def test_an_unreadable_list_permits_no_host():
    options = {"virt": {"connections": 5}}

    assert config.host_settings(options, connection="qemu:///session").uri == "qemu:///session"
    with pytest.raises(BadConfig, match="virt:connections"):
        config.host_settings(options, connection=LISTED)


@pytest.mark.parametrize("uri_template", ["test:///{}", "qemu+ext:///system?command={}"])
def test_a_reading_call_runs_no_program_and_shows_no_file(tmp_path, uri_template):
    """The test uses the real libvirt and the connection of each function of ``virt``."""
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n# $y$hash\n")
    program.chmod(0o755)

    options = {"connection": uri_template.format(program)}

    with pytest.raises(VirtError) as refused:
        connect.open_connection(config.for_call("virt.node_info", options, {})).__enter__()

    assert not (tmp_path / "ran").exists()
    assert "#!/bin/sh" not in str(refused.value)


@pytest.mark.parametrize("argument", ["config", "graphics"])
def test_the_error_about_a_wrong_argument_shows_no_password(argument):
    with pytest.raises(BadArgument, match=f"^{argument}: is not a mapping$"):
        arguments.mapping(argument, "type: vnc, password: s3cret")
