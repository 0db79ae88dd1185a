"""What a host and its guests can do, in the shapes that Salt 3006.25 returned."""

import faces
import pytest
from saltvirt.core.errors import BadArgument, LibvirtRefused
from saltvirt.libvirt import probe
from saltvirt.xml.node import capabilities, domaincaps, hostcaps

HOST = """<capabilities><host><uuid>44454c4c</uuid>
<cpu><arch>x86_64</arch><model>Nehalem</model><vendor>Intel</vendor><microcode version='25'/>
<topology sockets='1' cores='4' threads='2'/><feature name='vme'/><feature name='ds'/>
<pages unit='KiB' size='4'/></cpu>
<power_management><suspend_mem/></power_management>
<migration_features><live/><uri_transports><uri_transport>tcp</uri_transport></uri_transports>
</migration_features>
<topology><cells num='1'><cell id='0'><memory unit='KiB'>12367120</memory>
<distances><sibling id='0' value='10'/></distances>
<cpus num='1'><cpu id='0' socket_id='0' core_id='0' siblings='0,4'/></cpus></cell></cells>
</topology><cache><bank id='0' level='3' type='both' size='8' unit='MiB' cpus='0-7'>
<control granularity='768' min='1536' unit='KiB' type='code' maxAllocs='4'/></bank></cache>
<secmodel><model>dac</model><doi>0</doi><baselabel type='kvm'>+487:+486</baselabel></secmodel>
</host><guest><os_type>hvm</os_type><arch name='i686'><wordsize>32</wordsize>
<emulator>/bin/qemu</emulator>
<machine maxCpus='255'>pc-i440fx-2.6</machine>
<machine canonical='pc-i440fx-2.6' maxCpus='255'>pc</machine>
<domain type='qemu'/><domain type='kvm'><emulator>/bin/kvm</emulator>
<machine maxCpus='240'>pc-1.3</machine></domain></arch>
<features><cpuselection/><acpi default='on' toggle='yes'/></features></guest></capabilities>"""
# salt/modules/virt.py 6292-6526 of 3006.25 returns this for HOST.
SHOWN = {
    "host": {
        "uuid": "44454c4c",
        "cpu": {
            "arch": "x86_64",
            "model": "Nehalem",
            "vendor": "Intel",
            "features": ["vme", "ds"],
            "pages": [{"size": "4 KiB"}],
            "microcode": "25",
            "sockets": 1,
            "cores": 4,
            "threads": 2,
        },
        "power_management": ["suspend_mem"],
        "migration": {"live": True, "transports": ["tcp"]},
        "topology": {
            "cells": [
                {
                    "id": 0,
                    "memory": "12367120 KiB",
                    "distances": {0: 10},
                    "cpus": [{"id": 0, "socket_id": 0, "core_id": 0, "siblings": "0,4"}],
                }
            ]
        },
        "cache": {
            "banks": [
                {
                    "id": 0,
                    "level": 3,
                    "type": "both",
                    "size": "8 MiB",
                    "cpus": "0-7",
                    "controls": [
                        {
                            "granularity": "768 KiB",
                            "min": "1536 KiB",
                            "type": "code",
                            "maxAllocs": 4,
                        }
                    ],
                }
            ]
        },
        "security": [
            {"model": "dac", "doi": "0", "baselabels": [{"type": "kvm", "label": "+487:+486"}]}
        ],
    },
    "guests": [
        {
            "os_type": "hvm",
            "arch": {
                "name": "i686",
                "wordsize": 32,
                "emulator": "/bin/qemu",
                "machines": {"pc-i440fx-2.6": {"maxcpus": 255, "alternate_names": ["pc"]}},
                "domains": {
                    "qemu": {"emulator": None, "machines": {}},
                    "kvm": {
                        "emulator": "/bin/kvm",
                        "machines": {"pc-1.3": {"alternate_names": [], "maxcpus": 240}},
                    },
                },
            },
            "features": {
                "cpuselection": {"toggle": False, "default": True},
                "acpi": {"toggle": True, "default": True},
            },
        }
    ],
}
DOMAIN = """<domainCapabilities><path>/bin/qemu</path><domain>kvm</domain>
<machine>virt-2.12</machine>
<arch>aarch64</arch><vcpu max='255'/><iothreads supported='yes'/>
<os supported='yes'><loader supported='yes'><value>/OVMF.fd</value>
<enum name='type'><value>rom</value></enum></loader></os>
<cpu><mode name='host-passthrough' supported='yes'/>
<mode name='host-model' supported='yes'><model fallback='forbid'>sample</model><vendor>ACME</vendor>
<feature policy='require' name='vme'/></mode>
<mode name='custom' supported='yes'><model usable='unknown'>pxa262</model></mode>
<mode name='maximum' supported='no'/></cpu>
<devices><disk supported='yes'><enum name='bus'><value>fdc</value></enum></disk>
<hostdev supported='no'/></devices><features><gic supported='no'/></features>
</domainCapabilities>"""


def test_a_host_is_shown_as_it_was():
    assert hostcaps.read(HOST) == SHOWN


def test_kinds_of_guests_are_shown_as_they_were():
    # salt/modules/virt.py 6569-6700 of 3006.25.
    assert domaincaps.read(DOMAIN) == {
        "emulator": "/bin/qemu",
        "domain": "kvm",
        "machine": "virt-2.12",
        "arch": "aarch64",
        "max_vcpus": 255,
        "iothreads": True,
        "os": {"loader": {"type": ["rom"], "values": ["/OVMF.fd"]}},
        "cpu": {
            "host-passthrough": True,
            "host-model": {
                "model": {"name": "sample", "fallback": "forbid"},
                "vendor": "ACME",
                "features": {"vme": "require"},
            },
            "custom": {"models": {"pxa262": "unknown"}},
        },
        "devices": {"disk": {"bus": ["fdc"]}},
    }


def test_values_that_libvirt_omits_are_not_made_up():
    assert domaincaps.read("<domainCapabilities><os/></domainCapabilities>") == {
        **dict.fromkeys(("emulator", "domain", "machine", "arch")),
        "os": {},
    }


def test_libvirts_test_host_answers_or_refuses():
    virt_capabilities = faces.load("modules", "virt_capabilities")

    answer = virt_capabilities.capabilities()
    assert [guest["os_type"] for guest in answer["guests"]] == ["hvm", "xen"]
    assert answer["host"]["security"] == [{"model": "testSecurity", "doi": None, "baselabels": []}]
    for function in (
        virt_capabilities.domain_capabilities,
        virt_capabilities.all_capabilities,
        virt_capabilities.cpu_baseline,
    ):
        with pytest.raises(LibvirtRefused):
            function()


def test_a_baseline_is_summed_up_in_libvirts_order():
    features = "<feature name='b'/><feature name='a'/>"
    text = f"<cpu><model>Penryn</model><vendor>Intel</vendor>{features}</cpu>"

    summary = {"model": "Penryn", "vendor": "Intel", "features": ["b", "a"]}
    assert capabilities.cpu_summary(text) == summary


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"out": "yaml"}, "out: "), ({"full": "yes"}, "full: "), ({"ful": True}, "no argument 'ful'")],
)
def test_a_wrong_argument_of_the_baseline_is_named(options, reason):
    with pytest.raises(BadArgument, match=reason):
        faces.load("modules", "virt_capabilities").cpu_baseline(**options)


class Probed:
    """Stand for libvirt, which runs the emulator that a query names, with root's rights."""

    def __init__(self):
        self.queries = []

    def getCapabilities(self):  # noqa: N802 - libvirt's name
        """Return what the host is."""
        return HOST

    def getDomainCapabilities(self, *args):  # noqa: N802 - libvirt's name
        """Record which emulator would be run."""
        self.queries.append(args)
        return "<domainCapabilities/>"


@pytest.mark.parametrize(
    "emulator",
    ["/srv/x/prog", "prog", "", "/bin/qemu ", "/bin/../bin/qemu", "/bin/qemu\0", 5, ["/bin/qemu"]],
)
def test_no_emulator_is_run_that_libvirt_does_not_list(emulator):
    conn = Probed()

    with pytest.raises(BadArgument, match="^emulator: ") as refused:
        probe.read_domain_capabilities(conn, emulator, "x86_64", None, None)

    assert conn.queries == []
    assert "none that libvirt lists" in str(refused.value) or "not text" in str(refused.value)


@pytest.mark.parametrize("emulator", ["/bin/qemu", "/bin/kvm", None])
def test_an_emulator_that_libvirt_lists_is_queried(emulator):
    conn = Probed()

    probe.read_domain_capabilities(conn, emulator, None, "q35", "kvm")

    assert conn.queries == [(emulator, None, "q35", "kvm", 0)]
