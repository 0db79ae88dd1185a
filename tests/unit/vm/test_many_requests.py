"""What virt.init_many is asked for, whose turn it is, and what is said in a line."""

import pytest
from saltvirt.core.errors import BadArgument
from saltvirt.vm.create.master.many import manyrequest
from saltvirt.vm.create.master.many.builds import Turns
from saltvirt.vm.create.master.vmrequest import Terms

NIC = {"name": "eth0", "source": "br0", "mac": "52:00:00:00:00:01"}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("web{}", ["web9", "web10"]),
        ("{:03}-db", ["009-db", "010-db"]),
        ("a{:02}b", ["a09b", "a10b"]),
    ],
)
def test_a_pattern_has_its_numbers(pattern, names):
    assert manyrequest.number_names(pattern, 2, 9) == names


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("web", 3), "name: 'web' has no place for the number; give one, as in 'web{}'"),
        (("w{}b{}", 3), "has 2 places"),
        (("web{:3}", 3), "has no place"),
        (("web{0}", 3), "has no place"),
        (("we b{}", 3), "cannot name a VM"),
        (("web{}", 0), "count: 0 is out of range; give between 1 and 500"),
        (("web{}", 501), "count: 501 is out of range"),
        (("web{}", "many"), "count: 'many' is not a whole number"),
        (("web{}", None), "count: None is not a whole number"),
        (("web{}", 2, -1), "first: -1 is out of range"),
        (("w" * 62 + "{}", 10), "64 characters"),
    ],
)
def test_a_pattern_that_names_no_vms_is_one_line(given, why):
    with pytest.raises(BadArgument) as caught:
        manyrequest.number_names(*given)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("vms", "why"),
    [
        ("web1", "'web1' is not a list of VMs"),
        ([], "is not a list of VMs"),
        ([{"cpu": 1}], "is neither a name nor a mapping with one"),
        ([3], "is neither a name"),
        (["a", "b", "a"], "vms: 'a' is asked for twice"),
        ([{"name": "a", "host": "hyper1"}], "'host' of 'a' is said once, of all of them"),
        ([{"name": "a", "cpus": 1}], "VM 'a': .*'cpus'"),
        ([{"name": "a", "mem": "much"}], "VM 'a': mem"),
        ([{"name": "a", "cpu": None}], "cpu: is missing for VM 'a'"),
        ([{"name": "a", "disk": [{"system": {"size": 10}}]}], "VM 'a': disk: .* is not text"),
        ([{"name": "a", "nic": 5}], "VM 'a': nic: 5 is not text"),
        ([{"name": "a", "numatune": {"memnodes": [1]}}], "VM 'a': numatune: something in it"),
        ([{"name": "a", "numatune": {"memory": "strict"}}], "VM 'a': numatune: something in"),
        ([f"a{n}" for n in range(501)], "501 VMs; at most 500"),
        (
            [{"name": name, "interfaces": [NIC]} for name in "ab"],
            f"'a' and 'b' have MAC {NIC['mac']}",
        ),
    ],
)
def test_a_list_that_names_no_vms_is_one_line(vms, why):
    with pytest.raises(BadArgument, match=why):
        manyrequest.parse_requests(manyrequest.parse_list(vms, {"cpu": 1, "mem": 1}), Terms())


def test_turns_are_as_many_as_a_host_has_and_a_move_of_one_gives_its_own_back():
    turns = Turns({"a": ("h1",), "b": ("h1",), "c": ("h1",), "d": ("h2",)}, 2)

    assert [turns.next() for _ in range(3)] == ["a", "b", "d"]
    with turns.on("a", "h2"):
        assert turns.next() == "c"
    turns.over("a")
    assert turns.stop() == []
    assert turns.next() is None


def test_what_concerns_two_hosts_has_a_turn_of_both_and_one_host_may_have_more():
    moves = {"a": ("h1", "h2"), "b": ("h1", "h2"), "c": ("h1", "h3"), "d": ("h4", "h3")}
    turns = Turns(moves, 1, {"h1": 2})

    assert [turns.next() for _ in range(2)] == ["a", "c"]
    assert turns.under_way() == ["a", "c"]
    turns.over("c")
    assert turns.next() == "d"
    turns.over("a")
    assert turns.next() == "b"


def test_where_nothing_can_begin_and_nothing_is_under_way_nobody_waits():
    class Never:
        def ready(self, waiting):
            return ()

    turns = Turns({"a": ("h1",)}, 1, order=Never())

    assert turns.next() is None and turns.stop() == ["a"]


def test_a_line_of_reasons_has_each_once():
    why = {"h1": "full", "h2": "full", "h3": "off", "h4": "full", "h5": "full"}

    assert manyrequest.no_place(why) == "no host fits: full (h1, h2, h4 and 1 more); off (h3)"
