"""A guest that ran proves KVM; if no guest can be run, nothing is claimed."""

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

# libvirt's test driver refuses a guest of type kvm, as a real one does if QEMU lacks something.
TEST = HostSettings(uri="test:///default")


def capabilities(machines=("pc", "q35"), kinds=("qemu", "kvm")):
    """Return those of a host with these machine types and domain types."""
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

    process = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    assert (process.returncode, process.stderr) == (0, "")


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
    ("machines", "reason"),
    [
        (["virt"], "the test guest needs machine type pc or q35, and QEMU has none of them here"),
        (["q35"], r"a test guest \(machine type q35\) does not start: \w+"),
    ],
)
def test_a_test_guest_that_cannot_run_is_reported_and_emulation_is_no_default(
    machines, reason, tmp_path, monkeypatch
):
    monkeypatch.setattr(inspect, "RUN_DIR", str(tmp_path))
    with connect.open_connection(TEST, readonly=False) as conn:
        types = inspect.domain_types(conn, HostSettings(), capabilities(machines))

    assert (types.default, types.usable) == (None, ["qemu"])
    assert types.why.endswith("; set virt:hypervisor to kvm or qemu")
    assert re.search(f"KVM is not proved: .*{reason}", types.why)
    # The next call tries again: the missing part may be installed by then.
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


def test_the_model_of_a_domain_type_is_passed_to_libvirt_as_a_guests_cpu():
    text = """<domainCapabilities><arch>x86_64</arch><cpu>
      <mode name='maximum' supported='yes'><enum name='a'/></mode>
      <mode name='host-model' supported='yes'><model fallback='forbid'>EPYC</model>
      <vendor>AMD</vendor><maxphysaddr mode='passthrough'/><feature policy='require' name='ss'/>
      </mode></cpu></domainCapabilities>"""

    root = parse(host_xml.host_model(text))

    assert [(element.tag, element.text or element.get("name")) for element in root] == [
        # With an <arch> it would be a host's CPU, and disabled features would be among them.
        ("model", "EPYC"),
        ("vendor", "AMD"),
        ("feature", "ss"),
    ]
    assert host_xml.host_model(text.replace("'yes'", "'no'")) is None


def test_features_that_the_model_has_and_the_host_lacks_do_not_count():
    text = """<cpu><model>EPYC</model><feature policy='require' name='sse2'/>
      <feature policy='disable' name='avx'/><feature name='aes'/></cpu>"""

    assert host_xml.required_features(text) == ["aes", "sse2"]


def test_the_listed_features_are_all_if_libvirt_has_no_data_of_cpus():
    with connect.open_connection(TEST, readonly=False) as conn:
        cpu = {"arch": "x86_64", "model": None, "features": ["avx"]}
        assert hostfacts.cpu_features(conn, cpu, "test") == ["avx"]


def test_features_that_the_hosts_model_implies_count_if_libvirt_does_not_list_the_guests(
    monkeypatch,
):
    host_cpu = "<cpu><arch>x86_64</arch><model>Haswell</model><feature name='vmx'/></cpu>"
    # The test driver's CPU has no model.
    monkeypatch.setattr(hostfacts, "own_cpu", lambda _conn: host_cpu)
    with connect.open_connection(TEST, readonly=False) as conn:
        cpu = {"arch": "x86_64", "model": "Haswell", "features": ["vmx"]}
        features = hostfacts.cpu_features(conn, cpu, "test")

    assert {"vmx", "avx2", "sse4.2"} <= set(features)


def test_no_user_of_the_host_keeps_it_from_looking_for_kvm(tmp_path, monkeypatch):
    monkeypatch.setattr(probe, "attempt", lambda *_args: {"usable": True, "why": "it ran"})
    results = []

    with connect.open_connection(TEST) as conn:

        def look():
            results.append(probe._probe_once(conn, "x86_64", "pc", tmp_path / "run"))

        look()
        with another_user_holds(tmp_path / "run"):
            assert ends(look)

    assert results == 2 * [{"usable": True, "why": "it ran"}]
