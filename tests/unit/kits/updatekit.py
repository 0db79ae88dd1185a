"""Calls of virt.update, and the resulting definitions."""

# The answers of 3006.25's modules/virt.py on test:/// (update, lines 3754-3758 and 4198-4209).
IDLE = {
    "definition": False,
    "disk": {"attached": [], "detached": [], "updated": []},
    "interface": {"attached": [], "detached": []},
}
DEFINED = {**IDLE, "definition": True}
XML = """<domain type='test'><name>web1</name><memory unit='MiB'>512</memory><vcpu>2</vcpu>
<metadata><saltvirt:vm xmlns:saltvirt='urn:saltvirt:1' disk_mib='100'/></metadata>
<os><type arch='i686'>hvm</type><boot dev='hd'/></os><on_reboot>destroy</on_reboot>
<features><acpi/><kvm><hidden state='on'/></kvm></features>
<devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2' discard='unmap'/>
<source file='/srv/web1_system.qcow2'/><target dev='vda' bus='virtio'/></disk>
<disk type='file' device='disk'><source file='/srv/web1_seed.iso'/>
<target dev='vdb' bus='virtio'/><serial>saltvirt-seed</serial></disk>
<disk type='file' device='cdrom'><source file='/srv/a.iso'/><target dev='hda' bus='ide'/></disk>
<interface type='network'><mac address='52:54:00:00:00:01'/><source network='default'/>
<model type='virtio'/><boot order='7'/></interface>
<graphics type='vnc' passwd='secret' listen='192.0.2.7'/><serial type='pty'/>
</devices></domain>"""

# By argument: a first call, and the resulting part of the definition.
CALLS = [
    ({"cpu": 4}, lambda definition: definition.vcpus.maximum == "4"),
    (
        {"mem": 1024},
        lambda definition: (definition.memory.size_kib, definition.memory.current_kib)
        == (2**20, 2**20),
    ),
    ({"mem": "1g"}, lambda definition: definition.memory.size_kib == 2**20),
    (
        {"mem": {"soft_limit": "256m", "hard_limit": "1g"}},
        lambda definition: definition.memory.limits_kib
        == {"soft_limit": 2**18, "hard_limit": 2**20},
    ),
    ({"mem": {"current": "256m"}}, lambda definition: definition.memory.current_kib == 2**18),
    (
        {"mem": {"hugepages": [{"size": "2m"}], "nosharepages": True}},
        lambda definition: definition.memory.backing.nosharepages,
    ),
    (
        {"cpu": {"maximum": 4, "current": 2, "tuning": {"shares": 5, "vcpupin": {0: "0,1"}}}},
        lambda definition: definition.cputune.numbers == {"shares": "5"},
    ),
    (
        {"cpu": {"tuning": {"vcpusched": [{"scheduler": "fifo", "priority": 2, "vcpus": "0-1"}]}}},
        lambda definition: definition.cputune.scheds[0][1]["scheduler"] == "fifo",
    ),
    (
        {"cpu": {"tuning": {"emulatorpin": "0,1,2", "emulatorsched": {"scheduler": "idle"}}}},
        lambda definition: definition.cputune.pins == (("emulatorpin", {"cpuset": "0-2"}),),
    ),
    *(
        (
            {"cpu": {"tuning": {"cachetune": {0: {0: {"level": 3, "type": "both", "size": kib}}}}}},
            lambda definition, row=row: definition.cputune.parts[0].rows[0][1].items()
            >= row.items(),
        )
        for kib, row in (
            (768, {"size": "768", "unit": "KiB"}),
            (3072, {"size": "3", "unit": "MiB"}),
            ("2g", {"size": "2", "unit": "GiB"}),
        )
    ),
    (
        {"cpu": {"topology": {"sockets": 2}, "mode": "custom", "model": "Haswell"}},
        lambda definition: definition.cpu.model.name == "Haswell",
    ),
    (
        {"cpu": {"mode": "host-model", "features": {"lahf": "optional"}}},
        lambda definition: definition.cpu.features == {"lahf": "optional"},
    ),
    (
        {"cpu": {"vcpus": {0: {"enabled": True}, 1: {"enabled": False}}, "current": 1}},
        lambda definition: len(definition.vcpus.states) == 2,
    ),
    (
        {"cpu": {"numa": {0: {"cpus": "0", "memory": "256m"}, 1: {"cpus": "1", "memory": 256}}}},
        lambda definition: [cell.memory_kib for cell in definition.cpu.cells] == [2**18, 2**18],
    ),
    ({"cpu": {"iothreads": 2}}, lambda definition: definition.vcpus.iothreads == "2"),
    (
        {"numatune": {"memory": {"mode": "strict", "nodeset": "0,1"}}},
        lambda definition: definition.numatune.memory == {"mode": "strict", "nodeset": "0-1"},
    ),
    ({"boot_dev": "network hd"}, lambda definition: definition.os.boot == ("network", "hd")),
    ({"boot_dev": "hd network"}, lambda definition: definition.os.boot == ("hd", "network")),
    ({"boot": {"efi": True}}, lambda definition: definition.os.firmware == "efi"),
    (
        {"boot": {"kernel": "/etc/hosts", "cmdline": "x"}},
        lambda definition: definition.os.cmdline == "x",
    ),
    (
        {"clock": {"adjustment": 3600, "utc": False}},
        lambda definition: definition.clock.attributes["basis"] == "localtime",
    ),
    (
        {"clock": {"timezone": "CEST"}},
        lambda definition: definition.clock.attributes["timezone"] == "CEST",
    ),
    (
        {"clock": {"timers": {"tsc": {"frequency": 3504000000}, "hpet": {"present": False}}}},
        lambda definition: len(definition.clock.timers) == 2,
    ),
    (
        {"hypervisor_features": {"kvm-hint-dedicated": True}},
        lambda definition: definition.features.hint_dedicated is True,
    ),
    ({"graphics": {"type": "spice"}}, lambda definition: definition.graphics[0].type == "spice"),
    (
        {"graphics": {"type": "vnc", "port": 5905, "listen": "127.0.0.1"}},
        lambda definition: (definition.graphics[0].port, definition.graphics[0].password)
        == ("5905", "secret"),
    ),
    ({"graphics": {"type": "none"}}, lambda definition: definition.graphics == ()),
    (
        {"serials": [{"type": "tcp", "port": 22223}]},
        lambda definition: definition.chardevs[0].type == "tcp",
    ),
    (
        {"serials": [{"type": "pty"}, {"type": "pty"}]},
        lambda definition: len(definition.chardevs) == 3,
    ),
    ({"serials": [], "consoles": [], "detach": True}, lambda definition: definition.chardevs == ()),
    (
        {"consoles": [{"type": "pty"}, {"type": "pty", "target_type": "virtio"}]},
        lambda definition: len(definition.chardevs) == 3,
    ),
    ({"stop_on_reboot": True, "cpu": 3}, lambda definition: definition.on_reboot == "destroy"),
    (
        {"interfaces": [{"name": "eth1", "type": "network", "source": "other"}], "detach": True},
        lambda definition: [interface.on for interface in definition.interfaces] == ["other"],
    ),
    (
        {
            "interfaces": [
                {"name": "eth0", "network": "default", "mtu": 1400},
                {"name": "eth1", "network": "default", "mac": "52:54:00:00:00:09"},
            ]
        },
        lambda definition: [interface.mac[-2:] for interface in definition.interfaces]
        == ["01", "09"],
    ),
    ({"interfaces": [], "detach": True}, lambda definition: definition.interfaces == ()),
    (
        {"disks": [], "detach": True},
        lambda definition: [vm_disk.serial for vm_disk in definition.disks] == ["saltvirt-seed"],
    ),
    (
        {"disks": [{"name": "system"}, {"name": "cd", "device": "cdrom"}]},
        lambda definition: [
            vm_disk.path for vm_disk in definition.disks if vm_disk.device == "cdrom"
        ]
        == [None],
    ),
    (
        {
            "disks": [{"name": "system", "io": "threads"}, {"name": "data", "size": 8}],
            "detach": True,
        },
        lambda definition: [vm_disk.target["dev"] for vm_disk in definition.disks]
        == ["vda", "vdb", "vdc"],
    ),
]

# Each call undoes the first one.
BACK = [
    ({"mem": {"soft_limit": "256m"}}, {"mem": {"soft_limit": None}}),
    ({"cpu": {"tuning": {"shares": 5}}}, {"cpu": {"tuning": {"shares": None}}}),
    ({"cpu": {"tuning": {"shares": 5}}}, {"cpu": {"tuning": None}}),
    ({"cpu": {"iothreads": 2}}, {"cpu": {"iothreads": None}}),
    ({"numatune": {"memory": {"nodeset": "0"}}}, {"numatune": {"memory": None}}),
    ({"boot": {"efi": True}}, {"boot": {"efi": False}}),
    (
        {"boot": {"kernel": "/etc/hosts", "initrd": "/etc/hosts", "cmdline": "a"}},
        {"boot": {"kernel": None, "initrd": None, "cmdline": None}},
    ),
    ({"clock": {"adjustment": 9}}, {"clock": {"adjustment": None}}),
    ({"clock": {"timers": {"hpet": {"present": False}}}}, {"clock": {"timers": None}}),
    (
        {"hypervisor_features": {"kvm-hint-dedicated": True}},
        {"hypervisor_features": {"kvm-hint-dedicated": None}},
    ),
]

BAD = [
    ({"cpu": {"maximun": 2}}, "maximun"),
    ({"cpu": "many"}, "cpu"),
    ({"mem": {"soft_limit": "2HB"}}, "soft_limit"),
    ({"boot": {"loader": "/etc/hosts", "initrd": "/etc/hosts"}}, "loader"),
    ({"boot": {"initrd": "/etc/hosts"}}, "'initrd' needs 'kernel'"),
    ({"boot": {"efi": "Not a boolean value"}}, "neither True nor False"),
    ({"boot": {"kernel": "/none"}}, "there is no file /none"),
    ({"boot_dev": "tape"}, "tape"),
    ({"disks": [{"name": "../x", "size": 1}]}, "use letters"),
    ({"interfaces": "eth0"}, "interfaces"),
    ({"host_devices": ["pci_none"]}, "not a device of this host"),
    ({"live": "yes"}, "live"),
    ({"graphics": {"type": "vnc", "pasword": "x"}}, "pasword"),
    # Values that libvirt refuses only for a definition, which a dry run would not notice.
    ({"graphics": {"type": "vnc", "port": "x"}}, "graphics:port: 'x' is not a whole number"),
    ({"graphics": {"type": "spice", "tls_port": 1.5}}, "graphics:tls_port: 1.5 is not a whole"),
    ({"graphics": {"type": "vnc", "port": 70000}}, "graphics:port: 70000 is out of range"),
    ({"graphics": {"type": "vnc", "listen": {"type": "x"}}}, "graphics:listen:type: 'x'; one of"),
    ({"serials": [{"type": "tcp", "protocol": "x"}]}, "serials:protocol: 'x'; one of raw"),
    ({"serials": [{"type": "pty", "target_port": "x"}]}, "serials:target_port: 'x' is not a"),
    ({"consoles": [{"type": "pty", "target_type": "x"}]}, "consoles:target_type: 'x'; one of"),
    ({"cpu": {"cpuset": "x"}}, "cpu:cpuset: 'x'; numbers and ranges"),
    ({"cpu": {"mode": "x"}}, "cpu:mode: 'x'; one of custom"),
    ({"cpu": {"topology": {"cores": 0}}}, "cpu:topology:cores: 0 is out of range"),
    ({"cpu": {"features": {"lahf": "x"}}}, "cpu:features:lahf: 'x'; one of force"),
    ({"cpu": {"model": {"name": "a", "vendor_id": "x"}}}, "'x' has 1 characters; it must have 12"),
    ({"cpu": {"numa": {0: {"cpus": "3-1", "memory": "1g"}}}}, "cpu:numa:0:cpus: '3-1'; numbers"),
    ({"cpu": {"iothreads": "x"}}, "cpu:iothreads: 'x' is not a whole number"),
    ({"cpu": {"tuning": {"vcpupin": {0: "x"}}}}, "cpu:tuning:vcpupin:0: 'x'; numbers"),
    ({"cpu": {"tuning": {"shares": -1}}}, "cpu:tuning:shares: -1 is out of range"),
    (
        {"cpu": {"tuning": {"vcpusched": [{"scheduler": "x", "vcpus": "0"}]}}},
        "cpu:tuning:vcpusched:scheduler: 'x'; one of batch",
    ),
    ({"mem": {"access": "x"}}, "mem:access: 'x'; one of shared, private"),
    ({"mem": {"hugepages": [{"nodeset": "x", "size": "2m"}]}}, "mem:hugepages:nodeset: 'x'; num"),
    ({"mem": {"max": "2g", "slots": "x"}}, "mem:slots: 'x' is not a whole number"),
    ({"mem": {"max": "2g", "slots": 0}}, "mem:slots: 0 is out of range; give at least 1"),
    ({"cpu": {"cpuset": "1_0"}}, "cpu:cpuset: '1_0'; numbers and ranges"),
    ({"cpu": {"cpuset": "0-7,^2-3"}}, r"cpu:cpuset: '0-7,\^2-3'; numbers and ranges"),
    ({"cpu": {"cpuset": ","}}, "cpu:cpuset: ','; numbers and ranges"),
    ({"cpu": {"cpuset": "0,,1"}}, "cpu:cpuset: '0,,1'; numbers and ranges"),
    ({"numatune": {"memory": {"mode": "x"}}}, "numatune:memory:mode: 'x'; one of strict"),
    ({"clock": {"timers": {"tsc": {"frequency": "x"}}}}, "clock:timers:tsc:frequency: 'x' is not"),
    ({"clock": {"timers": {"rtc": {"track": "x"}}}}, "clock:timers:rtc:track: 'x'; one of boot"),
    (
        {"interfaces": [{"name": "e", "virtualport": {"type": "midonet", "interfaceid": "x"}}]},
        "interfaceid: 'x' is not a UUID",
    ),
    ({"disks": [{"name": "d", "size": 8, "io": "x"}]}, "disk 'd': io: 'x'; one of native"),
    ({"disks": [{"name": "d", "size": 8, "iothread_id": "x"}]}, "iothread_id: 'x' is not a whole"),
    ({"interfaces": [{"name": "e", "model": "e1000.x"}]}, "model 'e1000.x'; a name such as"),
]

# Valid arguments that libvirt accepts.
GOOD = [
    {"graphics": {"type": "vnc", "port": "-1"}},
    {"graphics": {"type": "vnc", "port": ""}},
    {"serials": [{"type": "tcp", "host": None, "port": None, "target_type": None}]},
    {"consoles": [{"type": "pty", "target_type": None, "target_port": None}]},
    {"cpu": {"maximum": 4, "cpuset": "0-7, ^3"}},
    {"cpu": {"tuning": {"quota": -1, "period": 100000, "emulatorpin": 1}}},
    {"mem": {"source": "", "access": ""}},
    {"clock": {"adjustment": "reset"}},
    {"mem": {"hugepages": [{"size": "2m", "nodeset": "0"}]}},
    {"graphics": {"type": "vnc", "listen": {"type": "none"}}},
    {"graphics": {"type": "vnc", "listen": {"type": None, "address": ""}}},
    {"interfaces": [{"type": "network", "source": "default"}]},
    # A loop in a template leaves a comma; a float is inexact; an empty value counts as left out.
    {"cpu": {"maximum": 4, "cpuset": "0,1,"}},
    {"cpu": {"tuning": {"vcpupin": {0: "1,"}, "emulatorpin": "0-1, "}}},
    {"numatune": {"memory": {"mode": "strict", "nodeset": "0,"}}},
    {"clock": {"adjustment": 2**53 + 1}},
    {"cpu": {"mode": "", "iothreads": ""}},
    {"cpu": {"iothreads": False}},
    {"cpu": {"tuning": {"shares": "", "quota": "", "emulatorpin": ""}}},
    {"mem": {"boot": "512m", "slots": 0}},
    {"mem": {"boot": "512m", "slots": ""}},
    {"serials": [{"type": "pty", "protocol": "", "target_type": "", "target_port": ""}]},
    {"consoles": [{"type": "pty", "target_type": False}]},
    {"cpu": {"tuning": {"period": False, "emulatorpin": None}}},
    {"serials": [{"type": "tcp", "port": 4555, "protocol": ""}]},
    {"graphics": {"type": "vnc", "listen": {"type": ""}}},
]
