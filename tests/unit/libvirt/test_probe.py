"""KVM is proved by a guest that ran; where none could be run, nothing is claimed."""

import re
import shutil
import subprocess

import pytest
from lockers import another_user_holds, ends
from saltvirt.core import wire
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect, hostfacts, probe
from saltvirt.vm.show.host import inspect
from saltvirt.xml import parse
from saltvirt.xml.node import capabilities as host_xml

# Libvirt's test driver refuses a guest of type kvm, as a real one does whose QEMU lacks something.
TEST = HostSettings(uri="test:///default")


def capabilities(machines=("pc", "q35"), kinds=("qemu", "kvm")):
    """Return those of a host, with what its QEMU can be."""
    guest = {"os_type": "hvm", "arch": "x86_64", "domain_types": list(kinds)}
    return {"arch": "x86_64", "guests": [{**guest, "machines": list(machines)}]}


@pytest.mark.skipif(not shutil.which("qemu-system-x86_64"), reason="QEMU is not installed here")
@pytest.mark.parametrize("machine", probe.MACHINES)
def test_the_test_guest_switches_every_machine_off_that_it_may_be(machine, tmp_path):
    disk = tmp_path / "disk.raw"
    disk.write_bytes(probe.boot_disk())
    argv = [
        "qemu-system-x86_64",
        "-machine",
        f"{machine},accel=tcg",
        "-m",
        "16",
        "-nodefaults",
        "-display",
        "none",
        "-drive",
        f"file={disk},format=raw,if=virtio",
    ]

    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("machines", "machine"),
    [
        (["pc-i440fx-7.2", "pc", "q35"], "pc"),
        (["pc-q35-rhel10.0.0", "q35"], "q35"),
        (["virt"], None),
    ],
)
def test_the_test_guest_is_a_machine_that_qemu_has(machines, machine):
    assert probe.machine_for(machines) == machine


def test_the_machine_types_of_a_host_are_read_with_their_aliases():
    text = """<capabilities><host><cpu><arch>x86_64</arch></cpu></host><guest><os_type>hvm</os_type>
      <arch name='x86_64'><machine canonical='pc-q35-7.2'>q35</machine><machine>isapc</machine>
      <domain type='qemu'/><domain type='kvm'><machine>microvm</machine></domain></arch></guest>
      </capabilities>"""

    (guest,) = host_xml.read(text)["guests"]

    assert guest["machines"] == ["isapc", "microvm", "pc-q35-7.2", "q35"]
    assert guest["domain_types"] == ["qemu", "kvm"]


@pytest.mark.parametrize(
    ("machines", "why"),
    [
        (["virt"], "the test guest needs machine type pc or q35, and QEMU has none of them here"),
        (["q35"], r"a test guest \(machine type q35\) does not start: \w+"),
    ],
)
def test_where_no_test_guest_can_be_run_it_is_said_and_emulation_is_no_default(
    machines, why, tmp_path, monkeypatch
):
    monkeypatch.setattr(inspect, "RUN_DIR", str(tmp_path))
    with connect.open_connection(TEST, readonly=False) as conn:
        types = inspect.domain_types(conn, HostSettings(), capabilities(machines))

    assert (types.default, types.usable) == (None, ["qemu"])
    assert types.why.endswith("; set virt:hypervisor to kvm or qemu")
    assert re.search(f"KVM is not proved: .*{why}", types.why)
    # The next call tries again: what was missing may be there by then.
    assert not (tmp_path / "kvm-probe.json").exists()


def test_a_host_that_offers_no_kvm_emulates(tmp_path, monkeypatch):
    monkeypatch.setattr(inspect, "RUN_DIR", str(tmp_path))
    with connect.open_connection(TEST, readonly=False) as conn:
        types = inspect.domain_types(conn, HostSettings(), capabilities(kinds=["qemu"]))

    assert wire.plain(types) == {
        "default": "qemu",
        "usable": ["qemu"],
        "why": "libvirt offers no KVM guests on this host",
    }


def test_the_model_that_a_domain_type_has_is_told_to_libvirt_as_a_guests_cpu():
    text = """<domainCapabilities><arch>x86_64</arch><cpu>
      <mode name='maximum' supported='yes'><enum name='a'/></mode>
      <mode name='host-model' supported='yes'><model fallback='forbid'>EPYC</model>
      <vendor>AMD</vendor><maxphysaddr mode='passthrough'/><feature policy='require' name='ss'/>
      </mode></cpu></domainCapabilities>"""

    root = parse(host_xml.host_model(text))

    assert [(one.tag, one.text or one.get("name")) for one in root] == [
        # With an <arch> it were a host's, and what is disabled were there.
        ("model", "EPYC"),
        ("vendor", "AMD"),
        ("feature", "ss"),
    ]
    assert host_xml.host_model(text.replace("'yes'", "'no'")) is None


def test_features_that_the_model_has_and_the_host_lacks_do_not_count():
    text = """<cpu><model>EPYC</model><feature policy='require' name='sse2'/>
      <feature policy='disable' name='avx'/><feature name='aes'/></cpu>"""

    assert host_xml.required_features(text) == ["aes", "sse2"]


def test_where_libvirt_has_no_data_of_cpus_the_listed_features_are_all():
    with connect.open_connection(TEST, readonly=False) as conn:
        known = {"arch": "x86_64", "model": None, "features": ["avx"]}
        assert hostfacts.cpu_features(conn, known, "test") == ["avx"]


def test_what_the_hosts_model_implies_counts_where_libvirt_cannot_say_what_guests_get(monkeypatch):
    own = "<cpu><arch>x86_64</arch><model>Haswell</model><feature name='vmx'/></cpu>"
    monkeypatch.setattr(
        hostfacts, "own_cpu", lambda _conn: own
    )  # the test driver's CPU has no model
    with connect.open_connection(TEST, readonly=False) as conn:
        known = {"arch": "x86_64", "model": "Haswell", "features": ["vmx"]}
        found = hostfacts.cpu_features(conn, known, "test")

    assert {"vmx", "avx2", "sse4.2"} <= set(found)


def test_no_user_of_the_host_keeps_it_from_looking_for_kvm(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "attempt", lambda *_given: {"usable": True, "why": "it ran"})
    found = []

    with connect.open_connection(TEST) as conn:

        def look():
            found.append(probe._probe_once(conn, "x86_64", "pc", tmp_path / "run"))

        look()
        with another_user_holds(tmp_path / "run"):
            assert ends(look)

    assert found == 2 * [{"usable": True, "why": "it ran"}]
