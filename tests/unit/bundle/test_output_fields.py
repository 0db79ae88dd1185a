"""Chosen fields of VMs have the labels and units of a VM that is shown whole."""

from test_output import CLOUD, VM, outputter


def test_some_fields_have_the_labels_and_units_of_a_whole_vm():
    asked = {"mem": 524288, "maxMem": 1048576, "cputime": 2_500_000_000, "cpu": 2, "loader": None}
    few = {"hyper7": {"db": {**asked, "disks": VM["disks"]}}}
    lines = [line.strip() for line in outputter("virt_query")(few).splitlines()]

    assert lines[2:6] == [
        "CPU: 2",
        "CPU time: 2.5 s",
        "Memory: 512.0 MiB",
        "Most memory: 1.0 GiB",
    ]
    assert "Size: 2.0 GiB" in lines and lines[-1] == "loader: None"
    whole = outputter("virt_query")(CLOUD)
    assert "Memory: 512.0 MiB" in whole and "Most memory" not in whole
