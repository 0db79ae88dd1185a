"""What a table of hosts says of one that is wanting can be copied, whatever it is."""

from test_output import outputter

SHARE = {"limit_mib": 1, "committed_mib": 0}
HOST = {
    "cpu": {"vcpus_limit": 4, "vcpus_committed": 1},
    "memory": SHARE,
    "storage": SHARE,
    "vms": [],
}


def test_what_is_to_be_typed_and_paths_are_not_cut_in_two():
    command, path = "salt-run virt.settle web-1", f"/srv/{'a' * 90}/disk.qcow2"
    why = f"the disk of a VM that is moving is not there yet, as its source is silent: {command}"

    shown = outputter("virt_hosts")({"failed": {"h1": f"{why}, {path}"}})

    assert "salt-run" in shown and "web-1," in shown and path in shown


def test_a_host_that_does_not_say_why_is_in_the_table():
    kinds = {"default": None, "why": None}

    shown = outputter("virt_hosts")({"h1": {**HOST, "domain_types": kinds}, "failed": {"h2": None}})

    first_words = [line.split()[0] for line in shown.splitlines()]
    assert first_words == ["HYPERVISOR", "h1", "CPUS,", "h1:", "h2:"]
