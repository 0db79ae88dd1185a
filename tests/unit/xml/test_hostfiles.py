"""The files beside disks that a domain names: they must exist on the host that starts it."""

import pytest
from saltvirt.xml.domain import sysinfo
from saltvirt.xml.edit import hostfiles, readdomain

QEMU = "xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'"


def files_of(devices="", more=""):
    """Return the files that a host needs for a domain with these elements."""
    return hostfiles.required_files(
        readdomain.domain(
            f"<domain {QEMU}><name>m1</name>{more}<devices>{devices}</devices></domain>"
        )
    )


DEVICES = {
    "rom": "<interface type='user'><rom bar='on' file='/a'/></interface>",
    "serial device": "<serial type='dev'><source path='/a'/></serial>",
    "pipe": "<serial type='pipe'><source path='/a'/></serial>",
    "parallel": "<parallel type='dev'><source path='/a'/></parallel>",
    "socket of another": "<serial type='unix'><source mode='connect' path='/a'/></serial>",
    "redirected": "<redirdev bus='usb' type='unix'><source mode='connect' path='/a'/></redirdev>",
    "evdev": "<input type='evdev'><source dev='/a' grab='all'/></input>",
    "input": "<input type='passthrough' bus='virtio'><source evdev='/a'/></input>",
    "rng": "<rng model='virtio'><backend model='random'>/a</backend></rng>",
    "egd": "<rng model='virtio'><backend model='egd' type='unix'>"
    "<source mode='connect' path='/a'/></backend></rng>",
    "virtiofsd": "<filesystem type='mount'><binary path='/a'/></filesystem>",
    "certificates": "<smartcard mode='host-certificates'><database>/a</database></smartcard>",
    "render node": "<graphics type='spice'><gl enable='yes' rendernode='/a'/></graphics>",
    "acceleration": "<video><model type='virtio'><acceleration rendernode='/a'/></model></video>",
    "vdpa": "<interface type='vdpa'><source dev='/a'/></interface>",
    "vhost-user": "<interface type='vhostuser'><source type='unix' path='/a' mode='client'/>"
    "</interface>",
    "tap": "<interface type='ethernet'><backend tap='/a'/></interface>",
    "script": "<interface type='ethernet'><script path='/a'/></interface>",
    "shared memory": "<shmem name='s'><server path='/a'/></shmem>",
    "reservations": "<disk type='block'><source dev='/b'><reservations managed='no'>"
    "<source type='unix' path='/a' mode='client'/></reservations></source></disk>",
    "sound": "<audio id='1' type='oss'><output dev='/a'/></audio>",
}


@pytest.mark.parametrize("devices", DEVICES.values(), ids=DEVICES)
def test_a_file_or_device_that_a_device_names(devices):
    assert files_of(devices) == ["/a"]


FIRMWARE = {
    "device tree": "<os><dtb>/a</dtb></os>",
    "shim": "<os><shim>/a</shim></os>",
    "slic": "<os><acpi><table type='slic'>/a</table></acpi></os>",
    "fw_cfg": "<sysinfo type='fwcfg'><entry name='opt/com.coreos/config' file='/a'/></sysinfo>",
    "tdx": "<launchSecurity type='tdx'><quoteGenerationService path='/a'/></launchSecurity>",
}


@pytest.mark.parametrize("more", FIRMWARE.values(), ids=FIRMWARE)
def test_a_file_that_firmware_names(more):
    assert files_of(more=more) == ["/a"]


ARGUMENTS = {
    "-fw_cfg": "name=opt/org.x,file=/a",
    "-acpitable": "file=/a",
    "-smbios": "file=/a",
    "-dtb": "/a",
    "-device": "vfio-pci,sysfsdev=/a,romfile=/a",
    "-object": "input-linux,id=kbd,evdev=/a",
}


@pytest.mark.parametrize(("option", "value"), ARGUMENTS.items(), ids=ARGUMENTS)
def test_a_file_that_qemu_is_given(option, value):
    arguments = "".join(f"<qemu:arg value='{text}'/>" for text in (option, value))
    assert files_of(more=f"<qemu:commandline>{arguments}</qemu:commandline>") == ["/a"]


MADE_FILES = {
    "serial": "<serial type='file'><source path='/srv/a/log'/></serial>",
    "log": "<serial type='pty'><log file='/srv/a/log'/></serial>",
    "server": "<serial type='unix'><source mode='bind' path='/srv/a/sock'/></serial>",
    "sound": "<audio id='1' type='file' path='/srv/a/x.wav'/>",
}


@pytest.mark.parametrize("devices", MADE_FILES.values(), ids=MADE_FILES)
def test_the_folder_of_a_file_that_is_made(devices):
    assert files_of(devices) == ["/srv/a/"]


NO_FILES = {
    "pty": "<serial type='pty'><source path='/dev/pts/3'/></serial>",
    "agent": "<channel type='unix'><source mode='bind' path='/var/lib/libvirt/qemu/channel/a'/>"
    "</channel>",
    "network": "<serial type='tcp'><source mode='bind' host='127.0.0.1' service='4555'/></serial>",
    "random numbers": "<rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>",
    "alsa": "<audio id='1' type='alsa'><output dev='default'/></audio>",
    "listens": "<qemu:commandline><qemu:arg value='-device'/><qemu:arg value='intel-hda'/>"
    "</qemu:commandline>",
}


@pytest.mark.parametrize("devices", NO_FILES.values(), ids=NO_FILES)
def test_a_path_that_libvirt_makes_or_that_is_no_file_is_not_required(devices):
    assert files_of(devices) == []


def test_the_credential_of_a_seed_is_distinguished_from_a_users_file():
    seed_credential = sysinfo.for_file(sysinfo.CREDENTIAL, "/srv/web1_seed.credentials")
    foreign_file = sysinfo.for_file("opt/com.coreos/config", "/srv/web1.ign")

    def root(info):
        text = "<domain><name>m1</name><os/>{}</domain>"
        root_element = readdomain.domain(text.format(""))
        sysinfo.add(root_element, info)
        return root_element

    assert (
        readdomain.has_seed_credential(root(seed_credential))
        and hostfiles.required_files(root(seed_credential)) == []
    )
    assert not readdomain.has_seed_credential(root(foreign_file))
    assert hostfiles.required_files(root(foreign_file)) == ["/srv/web1.ign"]
