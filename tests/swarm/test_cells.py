"""Cells: a top master on Salt 3008 and one on 3006 with a real salt-api, each with its hosts."""

import time

import cellkit
import pytest
from conftest import swarm_of
from swarmkit import life
from swarmkit.settings import Spec

SMALL = ("1", "64", "seed=False", "wait=False")
# What a command may take longer than without a silent cell.
SILENT_S = 2


@pytest.fixture(scope="module")
def top():
    """The top: three hosts of its own."""
    with swarm_of(Spec(hosts=3, vms=0), "top") as it:
        yield it


@pytest.fixture(scope="module")
def west():
    """A cell: three hosts that are called as those of the top."""
    with swarm_of(Spec(hosts=3, vms=0, salt="3006", options=cellkit.API), "west") as it:
        yield it


@pytest.fixture(scope="module")
def api(top, west):
    """The salt-api of the cell, and the configurations of the top."""
    cellkit.wire(top, west)
    cellkit.certificates(top, west)
    cellkit.users(top, west)
    own, cells = {"hypervisors": "h[0-9]*"}, {"west": cellkit.CELL}
    named = {"west": {**cellkit.CELL, "prefix": "west-"}}
    cellkit.configure(top, "cells", cells=cells, **own)
    cellkit.configure(top, "bare", cells=cells)
    cellkit.configure(top, "named", cells=named, cell_prefix="top-", **own)
    it = cellkit.Api(west)
    it.start()
    yield it
    it.stop()


@pytest.fixture(scope="module")
def cloud(top, west, api):
    """A VM on either side."""
    for swarm, name in ((top, "vm-top"), (west, "vm-west")):
        done = swarm.run("virt.init", name, *SMALL)
        assert done.code == 0, done.out
    return top


def cells(top, *words, config="cells"):
    """Run a command on the top with its cells."""
    return top.run(*words, config=config)


def names(data):
    """Return ``{host: names}`` of virt.list."""
    return {host: sorted(n for some in row.values() for n in some) for host, row in data.items()}


def where(data, name):
    """Return the host that a list has a VM on."""
    (host,) = (host for host, vms in names(data).items() if name in vms)
    return host


def test_all_hosts_of_all_cells_are_seen_from_the_top(cloud):
    for fun in ("virt.list", "virt.query", "virt.host_info"):
        done = cells(cloud, fun)
        assert done.code == 0, done.out
        assert set(done.data) == {
            f"{cell}h000{number}" for cell in ("", "west/") for number in range(3)
        }

    listed = cells(cloud, "virt.list").data
    assert where(listed, "vm-west").startswith("west/")
    assert "/" not in where(listed, "vm-top")


def test_a_top_without_hypervisors_sees_those_of_its_cells(cloud):
    done = cells(cloud, "virt.list", config="bare")

    assert set(done.data) == {"west/h0000", "west/h0001", "west/h0002"}
    refused = cells(cloud, "virt.init", "vm-new", *SMALL, config="bare")
    assert refused.code == 1 and "so name the cell of the VM: west" in refused.data["error"]


def test_some_hosts_and_pages_of_all_of_them(cloud):
    one = cells(cloud, "virt.host_info", "host=*/h0001", "fields=memory")
    page = cells(cloud, "virt.host_info", "sort=memory", "limit=2", "offset=1", "fields=vms")
    west = cells(cloud, "virt.host_info", "cell=west")
    own = cells(cloud, "virt.host_info", "cell=local")

    assert set(one.data) == {"h0001", "west/h0001"}
    assert all(set(row) == {"memory"} for row in one.data.values())
    assert len(page.data) == 2 and all(set(row) <= {"vms"} for row in page.data.values())
    assert {host.partition("/")[0] for host in west.data} == {"west"}
    assert set(own.data) == {"h0000", "h0001", "h0002"}


def test_a_vm_is_looked_at_and_controlled_wherever_it_is(cloud, west):
    at = where(west.run("virt.list").data, "vm-west")

    shown = cells(cloud, "virt.vm_info", "vm-west")
    assert list(shown.data) == [f"west/{at}"]
    pulled = "stopped at once, by pulling its plug"
    for fun, done in (("stop", pulled), ("start", "started"), ("pause", "paused")):
        assert cells(cloud, f"virt.{fun}", "vm-west").data == {f"west/{at}": {"vm-west": done}}
    assert cells(cloud, "virt.resume", "vm-west", "cell=west").code == 0
    assert cells(cloud, "virt.stop", "vm-top").code == 0
    assert cells(cloud, "virt.start", "vm-top").code == 0


def test_a_vm_is_deployed_in_a_cell_and_purged(cloud, west):
    begin = cells(cloud, "virt.init", "vm-new", *SMALL, "cell=west")
    assert begin.code == 0, begin.out
    assert begin.data["cell"] == "west" and begin.data["host"].startswith("west/")
    assert begin.data["host"] == f"west/{where(west.run('virt.list').data, 'vm-new')}"

    again = cells(cloud, "virt.init", "vm-new", *SMALL)
    assert again.code == 1 and "is on west/h000" in again.data["error"]
    found = cells(cloud, "virt.find", "vm-new").data["vm-new"]
    assert found["hosts"] == {begin.data["host"]: "running"}
    gone = cells(cloud, "virt.purge", "vm-new").data
    assert gone[begin.data["host"]] == {"vm-new": "purged"}


def test_many_vms_are_deployed_in_a_cell_by_one_command(cloud):
    done = cells(cloud, "virt.init_many", "many{}", "2", *SMALL, "cell=west")
    assert done.code == 0, done.out
    assert set(done.data["built"]) == {"many1", "many2"}
    assert all(host.startswith("west/h000") for host in done.data["built"].values())
    here = cells(cloud, "virt.init_many", "many{}", "2", *SMALL)
    assert here.code == 1 and "'many1' is on west/h000" in here.data["error"]
    for name in ("many1", "many2"):
        assert cells(cloud, "virt.purge", name).code == 0


def test_one_name_is_deployed_once_by_two_commands_at_once(cloud):
    words = life.salt(cloud.place, "salt-run", ["virt.init", "vm-one", *SMALL], "cells")
    both = [cellkit.begin([*words, *more, "--out=json"]) for more in ((), ("cell=west",))]
    done = [cloud.end(process) for process in both]
    assert sorted(one.code for one in done) == [0, 1], [one.out for one in done]
    listed = names(cells(cloud, "virt.list").data)
    assert sum("vm-one" in vms for vms in listed.values()) == 1
    assert cells(cloud, "virt.purge", "vm-one").code == 0


def test_a_failure_of_a_cell_is_one_line_with_its_name(cloud):
    big = cells(cloud, "virt.init", "vm-new", "1", "60000000", "seed=False", "cell=west")
    assert big.code == 1 and big.data["error"].startswith("cell west: no host fits")
    assert all(host.startswith("west/") for host in big.data["hosts"])
    shown = cloud.shown("virt.stop", "nobody", config="cells")
    assert shown.code == 1
    assert "no VM called 'nobody' in any of local, west" in " ".join(shown.out.split())


def test_a_hosts_name_says_its_cell(cloud):
    done = cells(cloud, "virt.maintenance", "west/h0002", "on")
    assert done.code == 0, done.out
    assert cells(cloud, "virt.host_info").data["west/h0002"]["maintenance"] is True
    assert cells(cloud, "virt.maintenance", "h0002", "off", "cell=west").code == 0
    across = cells(cloud, "virt.migrate", "vm-top", "target=west/h0001", "cell=local")
    assert across.code == 1 and "a call goes to one cell" in across.data["error"]


@pytest.mark.nightly
def test_what_takes_long_is_waited_for(cloud, west):
    rule = {"host": "h000?", "fun": "virt.init", "slow_s": 25}
    with west.failing(rule):
        done = cells(cloud, "virt.init", "vm-slow", *SMALL, "cell=west")
    assert done.code == 0, done.out
    assert done.seconds > 25
    assert cells(cloud, "virt.purge", "vm-slow").code == 0


@pytest.mark.nightly
def test_a_cells_connection_may_break_meanwhile(cloud, west, api):
    rule = {"host": "h000?", "fun": "virt.init", "slow_s": 20}
    with west.failing(rule):
        words = life.salt(cloud.place, "salt-run", [], "cells")
        process = cellkit.begin([*words, "virt.init", "vm-cut", *SMALL, "cell=west", "--out=json"])
        time.sleep(12)
        api.stop()
        api.start()
        done = cloud.end(process)
    assert done.code == 0, done.out + done.err
    assert cells(cloud, "virt.purge", "vm-cut").code == 0


def silent(cloud, act):
    """Assert what a list says while a cell is silent, and how long it takes."""
    before = cells(cloud, "virt.list").seconds
    act()
    listed = cells(cloud, "virt.list")
    assert listed.code == 0
    assert set(listed.data) == {"h0000", "h0001", "h0002", "failed"}
    assert list(listed.data["failed"]) == ["west/*"]
    assert "is silent" in listed.data["failed"]["west/*"]
    assert listed.seconds < before + SILENT_S + 2  # the machine is busy


def refused(cloud, *words):
    """Assert that a command is refused, as it cannot know what the silent cell has."""
    done = cells(cloud, *words)
    assert done.code == 1 and "cell west: is silent" in done.data["error"]


def test_a_cell_whose_machine_is_away_is_named_and_not_waited_for(cloud, west):
    try:
        silent(cloud, lambda: west.sh("ip link set cells0 down"))
        said = cloud.shown("virt.list", config="cells").out
        assert "cell west: is silent" in said
        refused(cloud, "virt.init", "vm-new", *SMALL)
        refused(cloud, "virt.stop", "vm-west")
        assert cells(cloud, "virt.stop", "vm-top").code == 0
        assert cells(cloud, "virt.start", "vm-top").code == 0
    finally:
        west.sh("ip link set cells0 up")


def test_so_is_one_whose_salt_api_hangs(cloud, api):
    try:
        silent(cloud, lambda: api.signal("STOP"))
        refused(cloud, "virt.init", "vm-new", *SMALL)
    finally:
        api.signal("CONT")


def test_names_with_prefixes_need_no_other_cell(cloud, west):
    west.sh("ip link set cells0 down")
    try:
        done = cells(cloud, "virt.init", "top-1", *SMALL, config="named")
        foreign = cells(cloud, "virt.init", "vm-9", *SMALL, config="named")
    finally:
        west.sh("ip link set cells0 up")
    assert done.code == 0, done.out
    assert foreign.code == 1 and "begin with 'top-'" in foreign.data["error"]
    there = cells(cloud, "virt.init", "west-1", *SMALL, config="named")
    assert there.code == 0 and there.data["host"].startswith("west/")
    for name in ("top-1", "west-1"):
        assert cells(cloud, "virt.purge", name, config="named").code == 0


def test_a_cell_that_lets_us_do_less_says_so(cloud):
    cell = {**cellkit.CELL, "credentials": str(cellkit.NOBODY)}
    cellkit.configure(cloud, "reader", cells={"west": cell})
    assert cells(cloud, "virt.list", config="reader").code == 0
    refused = cells(cloud, "virt.stop", "vm-west", config="reader")
    assert refused.code == 1
    assert refused.data["error"].startswith("cell west: refuses user 'reader' (HTTP 401)")


def of_cells(cloud, config):
    """Return what a check of the setup finds of cells."""
    found = cells(cloud, "virt.setup_check", config=config).data["findings"]
    return [(one["where"], one["what"]) for one in found if one["check"] == "cells"]


def test_a_slip_in_one_entry_is_named_and_the_other_cell_is_used(cloud):
    slip = {**cellkit.CELL, "urls": "x"}
    cellkit.configure(cloud, "slip", cells={"west": cellkit.CELL, "east": slip})
    listed = cells(cloud, "virt.list", config="slip")
    assert listed.code == 0 and where(listed.data, "vm-west").startswith("west/")
    assert "option virt:cells:east: unknown key 'urls'" in listed.data["failed"]["east/*"]
    ((at, what),) = of_cells(cloud, "slip")
    assert at == "master" and "virt:cells:east" in what
    assert of_cells(cloud, "bare") == []


def test_a_certificate_of_another_authority_is_refused(cloud):
    cell = {**cellkit.CELL, "ca": None}
    cellkit.configure(cloud, "stranger", cells={"west": cell})
    refused = cells(cloud, "virt.list", config="stranger")
    assert refused.code == 1 and "is not accepted" in refused.data["error"]


def test_what_others_may_read_is_no_secret(cloud):
    cloud.sh('chmod 644 "$1"', cellkit.CREDENTIALS)
    try:
        refused = cells(cloud, "virt.list", "cell=west")
    finally:
        cloud.sh('chmod 600 "$1"', cellkit.CREDENTIALS)
    assert refused.code == 1 and "is open to other users (0644)" in refused.data["error"]


def test_nobody_has_seen_the_password(cloud, west):
    script = 'grep -rlF "$1" /run/swarm | sort || true'
    files = [str(path) for path in (cellkit.NOBODY, cellkit.CREDENTIALS)]
    assert cloud.sh(script, cellkit.PASSWORD).split() == files
    assert west.sh(script, cellkit.PASSWORD) == ""
    assert cellkit.PASSWORD not in (west.place.folder / "api.out").read_text()
