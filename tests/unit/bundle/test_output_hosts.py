"""Commands and paths in the errors of the table of hosts can be copied."""

from test_output import outputter

SHARE = {"limit_mib": 1, "committed_mib": 0}
HOST = {
    "cpu": {"vcpus_limit": 4, "vcpus_committed": 1},
    "memory": SHARE,
    "storage": SHARE,
    "vms": [],
}


def test_commands_and_paths_are_not_cut_in_two():
    command, path = "salt-run virt.settle web-1", f"/srv/{'a' * 90}/disk.qcow2"
    reason = f"the disk of a VM that is moving is not there yet, as its source is silent: {command}"

    text = outputter("virt_hosts")({"failed": {"h1": f"{reason}, {path}"}})

    assert "salt-run" in text and "web-1," in text and path in text


def test_a_host_without_a_reason_is_in_the_table():
    kinds = {"default": None, "why": None}

    text = outputter("virt_hosts")({"h1": {**HOST, "domain_types": kinds}, "failed": {"h2": None}})

    first_words = [line.split()[0] for line in text.splitlines()]
    assert first_words == ["HYPERVISOR", "h1", "CPUS,", "h1:", "h2:"]
