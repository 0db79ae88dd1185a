"""Domain XML: golden files, libvirt's own schema, and reading back."""

import json
import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.core.model import Disk
from saltvirt.core.options import config
from saltvirt.seeding import credentials
from saltvirt.vm import spec
from saltvirt.xml import element, parse, to_text
from saltvirt.xml.domain import domain
from saltvirt.xml.edit import readdomain
from saltvirt.xml.node import capabilities
from saltvirt.xml.storage import pooldisk, storagepool

ROOT = Path(__file__).resolve().parents[3]
GOLDEN = ROOT / "tests/data/domains"
PAGE = ROOT / "docs/iso-installs.md"
HOST = config.HostSettings()
CASES = {
    "default": {"image": "salt://centos.img"},
    "without-image": {},
    "vnc": {"image": "salt://c.img", "enable_vnc": True},
    "kernel": {"boot": {"kernel": "/boot/k", "initrd": "/boot/i", "cmdline": "console=ttyS0"}},
    "machine": {"machine": "pc-q35-7.2"},
    "efi": {"boot": {"efi": True}, "boot_dev": "network hd"},
    "loader": {"boot": {"loader": "/usr/share/OVMF/OVMF_CODE.fd", "nvram": "/v.fd"}},
    "spice": {
        "graphics": {
            "type": "spice",
            "port": 5930,
            "tls_port": 5931,
            "listen": {"type": "address", "address": "::1"},
        }
    },
    "clock": {
        "clock": {
            "utc": False,
            "timezone": "CET",
            "timers": {
                "tsc": {"frequency": 3504000000, "mode": "native"},
                "hpet": {"present": False},
            },
        }
    },
    "consoles": {
        "serials": [
            {"type": "tcp", "host": "127.0.0.1", "port": 22223, "protocol": "telnet", "tls": False},
            {"type": "pty"},
        ],
        "consoles": [{"type": "unix", "path": "/run/c.sock", "target_type": "serial"}],
    },
    "network": {
        "nic": None,
        "interfaces": {
            "eth0": {"network": "net0", "vlan": 7},
            "eth1": {"type": "direct", "source": "eno1"},
        },
    },
    "networks": {
        "nic": None,
        "interfaces": {
            "trunk": {
                "bridge": "ovs0",
                "virtualport": {
                    "type": "openvswitch",
                    "interfaceid": "09b11c53-8b5c-4eeb-8f00-d84eaa0aaa4f",
                },
                "vlan": {"tags": [10, "20-21"], "native": 7},
            },
            "safe": {
                "bridge": "br0",
                "mtu": 9000,
                "queues": 2,
                "filter": {"ip": ["192.0.2.7"]},
                "bandwidth": {"in": 1000, "out": {"average": 512, "peak": 1024, "burst": 256}},
            },
            "group": {"network": "lan", "portgroup": "web", "vlan": 30},
            "tap": {"type": "direct", "source": "eno1", "mode": "vepa"},
            "vf": {"type": "hostdev", "source": "0000:03:10.2", "vlan": 42},
            "pool": {"type": "hostdev", "source": "sriov"},
        },
    },
    "disks": {
        "disks": [
            {"name": "data", "size": "10g", "model": "scsi", "io": "native"},
            {"name": "cd", "device": "cdrom", "source_file": "/srv/x.iso"},
            {"name": "raw", "source_file": "/dev/mapper/x", "format": "raw", "model": "sata"},
        ]
    },
    "groups": {"affinity": "a,b", "anti_affinity": ["c"], "stop_on_reboot": True},
    "kvm-hint": {"hypervisor_features": {"kvm-hint-dedicated": True}},
}
BIG_CPU = {
    "maximum": 8,
    "current": 4,
    "placement": "static",
    "cpuset": "0-7",
    "mode": "custom",
    "match": "exact",
    "check": "partial",
    "vendor": "Intel",
    "model": {"name": "Broadwell", "fallback": "allow"},
    "topology": {"sockets": 2, "cores": 4},
    "cache": {"mode": "emulate", "level": 3},
    "features": {"pcid": "require", "vmx": "disable"},
    "iothreads": 2,
    "vcpus": {0: {"enabled": True, "hotpluggable": False}, 1: {"enabled": False}},
    "tuning": {
        "vcpupin": {0: "1-4,^2", 1: "0,1"},
        "emulatorpin": "1-3",
        "shares": 2048,
        "period": 122000,
        "quota": -1,
        "iothreadpin": {1: "5,6"},
    },
    "numa": {
        0: {"cpus": "0-3", "memory": "1g", "discard": True},
        1: {"cpus": "4-7", "memory": "512m", "distances": {0: 21, 1: 10}},
    },
}
BIG_MEMORY = {
    "boot": "1g",
    "current": "1g",
    "max": "4g",
    "slots": 4,
    "hard_limit": "2g",
    "soft_limit": "1g",
    "swap_hard_limit": "3g",
    "min_guarantee": "512m",
    "hugepages": [{"size": "2m"}],
    "nosharepages": True,
    "locked": True,
    "source": "anonymous",
    "access": "shared",
    "allocation": "immediate",
    "discard": True,
}


def vm_of_call(name="centos1", cpu=2, mem=512, **options):
    """Return the VM of a call, with its disks placed as by the host."""
    vm = spec.deployment(HOST, name, cpu, mem, options).vm
    disks = tuple(
        replace(
            disk,
            path=disk.source_file or f"/srv/salt-images/{name}_{disk.name}.qcow2",
            format=disk.format or "qcow2",
        )
        for disk in vm.disks
    )
    seed = f"/srv/salt-images/{name}_seed.iso.qcow2" if options.get("image") else None
    return replace(vm, disks=disks, seed_path=seed, domain_type="qemu", arch="x86_64")


def xml_of_call(*args, host_devices=(), **kwargs):
    """Return the XML of a call."""
    return domain.build(vm_of_call(*args, **kwargs), host_devices)


SECRET = "<secret type='ceph' uuid='3c9a1d3e-6d5a-4d31-9f0e-2b1c4c1d0a77'/>"
POOLS = {
    "vg": "<pool type='logical'><name>vg</name><source><name>vg</name></source></pool>",
    "ceph": "<pool type='rbd'><name>ceph</name><source><host name='mon' port='6789'/><host "
    f"name='mon2'/><name>vms</name><auth type='ceph' username='u'>{SECRET}</auth></source></pool>",
    "old": "<pool type='sheepdog'><name>old</name><source><host name='s'/><name>x</name></source>"
    "</pool>",
    "san": "<pool type='iscsi-direct'><name>san</name><source><host name='s'/>"
    "<device path='iqn.2013-06.com.example:x'/></source></pool>",
    "g": "<pool type='gluster'><name>g</name><source><host name='g1'/><dir path='/'/>"
    "<name>v</name></source></pool>",
}
URL = "https://web.example:8443/iso/x.iso?a=1&b=2"
REMOTE_MEDIUM = {"disks": [{"name": "cd", "device": "cdrom", "source_file": URL}]}


def _remote_disks():
    """Return disks in pools without a folder, and a remote medium."""
    disks = list(vm_of_call(**REMOTE_MEDIUM).disks[1:])
    for number, text in enumerate(POOLS.values()):
        place = pooldisk.remote_source(storagepool.read(parse(text)), "centos1_data")
        disks.append(Disk(name="data", target=f"vd{'abcdef'[number]}", elsewhere=place))
    return tuple(disks)


def calls_of_page():
    """Return the calls on the page about ISO installs, by the names of the VMs."""
    calls = {}
    for line in re.findall(r"^salt-run virt.init (.*)$", PAGE.read_text(), re.MULTILINE):
        name, cpu, mem, host, *words = shlex.split(line)
        assert host == "host=hyper1"
        keywords = [word.partition("=") for word in words]
        options = {key: yaml.safe_load(value) for key, _sign, value in keywords}
        calls[name] = {"cpu": int(cpu), "mem": int(mem), **options}
    for block in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL):
        for name, state in yaml.safe_load(block).items():
            rows = state["virt.running"]
            # A state without profiles has only the disks and NICs that it lists.
            calls[name] = {"disk": None, "nic": None} | {
                k: v for row in rows for k, v in row.items()
            }
    return calls


def all_cases():
    """Return the XML of every case by name."""
    texts = {name: xml_of_call(**options) for name, options in CASES.items()}
    texts["cpu-mapping"] = xml_of_call(cpu=BIG_CPU, mem=2048)
    texts["memory-mapping"] = xml_of_call(
        cpu={"maximum": 2, "numa": {0: {"cpus": "0-1", "memory": "1g"}}},
        mem=BIG_MEMORY,
        numatune={
            "memory": {"mode": "strict", "nodeset": "0"},
            "memnodes": {0: {"mode": "strict", "nodeset": "0"}},
        },
    )
    texts["elsewhere"] = domain.build(replace(vm_of_call(**REMOTE_MEDIUM), disks=_remote_disks()))
    devices = [
        {"name": "pci_0000_03_00_0"},
        {"name": "usb_1_2", "vendor_id": "0x046d", "product_id": "0xc52b"},
    ]
    texts["host-devices"] = xml_of_call(host_devices=devices)
    texts |= {
        f"page-{name}": xml_of_call(name, **options) for name, options in calls_of_page().items()
    }
    return texts


@pytest.mark.parametrize(
    "name",
    [
        *CASES,
        "cpu-mapping",
        "memory-mapping",
        "elsewhere",
        "host-devices",
        "page-inst1",
        "page-win1",
    ],
)
def test_the_xml_is_that_of_the_golden_file(name, request):
    path, text = GOLDEN / f"{name}.xml", all_cases()[name]
    if request.config.getoption("--regenerate"):
        path.write_text(text)

    assert path.read_text() == text


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*.xml")), ids=lambda path: path.stem)
def test_the_golden_xml_is_read_and_built_again(path):
    content = domain.read(parse(path.read_text()))

    assert to_text(element.build(content)) == path.read_text()


def test_libvirts_own_checker_takes_every_golden_file(validate):
    validate(path.read_text() for path in sorted(GOLDEN.glob("*.xml")))
    process = subprocess.run(
        ["virt-xml-validate", GOLDEN / "default.xml", "domain"], capture_output=True, check=False
    )

    assert process.returncode == 0, process.stdout


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}", fullmatch=True)
CALLS = st.fixed_dictionaries(
    {},
    optional={
        "image": st.sampled_from(["salt://a.img", "/srv/<&'\">.img"]),
        "enable_vnc": st.booleans(),
        "stop_on_reboot": st.booleans(),
        "boot_dev": st.sampled_from(["hd", "network hd", "cdrom hd network"]),
        "interfaces": st.lists(
            st.fixed_dictionaries({"name": NAMES, "network": NAMES}), max_size=3
        ),
        "disks": st.lists(
            st.fixed_dictionaries(
                {
                    "name": NAMES,
                    "size": st.integers(1, 10**6),
                    "model": st.sampled_from(["virtio", "scsi", "sata", "ide"]),
                }
            ),
            max_size=3,
        ),
        "affinity": st.lists(st.text("ab<>&\"'é ", min_size=1).filter(str.strip), max_size=3),
        "clock": st.sampled_from([{"utc": True}, {"adjustment": 3600}, {"timezone": "CET"}]),
        "serials": st.lists(
            st.sampled_from([{"type": "pty"}, {"type": "null"}, {"type": "tcp", "port": 4555}]),
            max_size=2,
        ),
    },
)


@pytest.mark.slow
def test_any_request_is_valid_for_libvirt(validate):
    texts = []

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(NAMES, st.integers(1, 512), st.integers(1, 10**7), CALLS)
    def generate(name, cpu, mem, options):
        vm = vm_of_call(name, cpu, mem, **options)
        text = domain.build(vm)
        texts.append(text)
        assert domain.read(parse(text)) == domain.from_call(vm)

    generate()
    validate(texts)


def test_no_text_of_a_user_becomes_markup():
    text = xml_of_call(affinity=["</metadata><devices>", "<!--"])

    assert readdomain.describe_notes(readdomain.domain(text))["affinity"] == [
        "</metadata><devices>",
        "<!--",
    ]


def test_built_xml_is_read_back():
    root = readdomain.domain(all_cases()["disks"])

    assert [d["target"] for d in readdomain.disk_sources(root)] == ["vda", "sda", "hda", "sdb"]
    assert [n["source"] for n in readdomain.nics(root).values()] == [{"bridge": "br0"}]
    assert readdomain.graphics(root)["type"] == "None"
    assert readdomain.describe_notes(root)["disk_mib"] == 8192 + 10240


def test_a_chosen_uuid_is_defined(validate):
    uuid = "4dea22b3-1d52-d8f3-2516-782e98ab3fa0"

    text = domain.build(replace(vm_of_call(), uuid=uuid))

    validate([text])
    assert domain.read(parse(text)).uuid == uuid


def test_a_seed_without_a_free_target_is_refused():
    disks = [{"name": f"d{number}"} for number in range(25)]

    with pytest.raises(BadArgument, match="vdb to vdz are in use"):
        xml_of_call(image="salt://c.img", disks=disks)


def test_the_old_shape_of_a_display():
    assert readdomain.graphics(readdomain.domain(all_cases()["vnc"])) == {
        "autoport": "yes",
        "keymap": "None",
        "listen": "127.0.0.1",
        "port": "None",
        "type": "vnc",
    }


def test_xml_with_entities_is_refused_before_anything_expands_it():
    with pytest.raises(VirtError, match="DOCTYPE"):
        parse('<!DOCTYPE d [<!ENTITY a "x">]><d>&a;</d>')
    with pytest.raises(VirtError, match="cannot be read"):
        parse("<domain>")


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"cpu": {"maximum": 1, "modell": "x"}}, "modell"),
        ({"mem": {"boot": 1, "hugepage": []}}, "hugepage"),
        ({"boot": {"kernal": "/x"}}, "kernal"),
        ({"clock": {"utcc": True}}, "utcc"),
        ({"graphics": {"type": "vnc", "pasword": "x"}}, "pasword"),
        ({"serials": [{"typ": "pty"}]}, "typ"),
        ({"hypervisor_features": {"kvm-hint": 1}}, "kvm-hint"),
        ({"numatune": {"memry": 1}}, "memry"),
    ],
)
def test_an_unknown_key_inside_a_mapping_is_named(options, key):
    with pytest.raises(BadArgument, match=f"no argument '{key}'"):
        xml_of_call(**options)


def test_a_host_without_our_metadata_is_read_without_complaint():
    assert (
        readdomain.describe_notes(readdomain.domain("<domain><name>x</name></domain>"))[
            "anti_affinity"
        ]
        == []
    )
    assert json.dumps(capabilities.read("<capabilities><host/></capabilities>"))


def test_a_credential_is_valid_for_libvirt(validate):
    deployed = spec.deployment(HOST, "vm1", 1, 512, {"image": "salt://c.img"})
    vm = replace(deployed.vm, domain_type="qemu", disks=())

    text = credentials.add_credential(domain.build(vm), "/srv/vm1_seed.credentials")

    validate([text])
    assert "type='fwcfg'" in text.replace('"', "'")
    assert "/srv/vm1_seed.credentials" in text
