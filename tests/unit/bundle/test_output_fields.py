"""Chosen fields of VMs have the same labels and units as in the full view of a VM."""

from test_output import CLOUD, VM, outputter


def test_chosen_fields_have_the_labels_and_units_of_all_fields():
    fields = {"mem": 524288, "maxMem": 1048576, "cputime": 2_500_000_000, "cpu": 2, "loader": None}
    answer = {"hyper7": {"db": {**fields, "disks": VM["disks"]}}}
    lines = [line.strip() for line in outputter("virt_query")(answer).splitlines()]

    assert lines[2:6] == [
        "CPU: 2",
        "CPU time: 2.5 s",
        "Memory: 512.0 MiB",
        "Most memory: 1.0 GiB",
    ]
    assert "Size: 2.0 GiB" in lines and lines[-1] == "loader: None"
    text = outputter("virt_query")(CLOUD)
    assert "Memory: 512.0 MiB" in text and "Most memory" not in text


def test_one_vm_is_shown_with_its_details():
    vm = {
        **VM,
        **{"autostart": True, "machine": "pc-q35-7.2", "snapshots": ["a", "b"], "hold": True},
        **{"affinity": ["shop"], "anti_affinity": ["db"], "created": None, "uptime_s": 7200},
        **{"pending": ["4 CPUs", "2048 MiB of memory"], "uuid": "x"},
    }

    lines = [line.strip() for line in outputter("virt_query")({"h": {"web1": vm}}).splitlines()]

    assert lines[-7:] == [
        "Running for: 2 h",
        "Machine type: pc-q35-7.2",
        "Starts with its host: yes",
        "Groups: shop (together), db (apart), hold (stays on its host)",
        "Snapshots: a, b",
        "From the next start: 4 CPUs, 2048 MiB of memory",
        "Console: salt-run virt.console_log web1",
    ]


def test_a_host_is_shown_with_the_use_of_its_running_vms():
    first = outputter("virt_query")(CLOUD).splitlines()[1]

    assert first == "  CPUs: 4 (2 used by running VMs)  Memory: 8.0 GiB (256.0 MiB used)"
