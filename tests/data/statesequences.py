"""Sequences of states, and the contract that each keeps on whatever libvirt it is applied."""

from hypothesis import strategies as st

VMS = ("web1", "web2")
NAMES = st.sampled_from([*VMS, "web*", "none*"])
POOLS, NETWORKS = ("p1", "p2"), ("n1", "n2")
# Their job is to act each time.
ACTS = ("snapshot", "saved", "reverted", "rebooted")
FLAG = st.booleans()
_DISKS = [{"name": "data", "size": 8, "pool": "p1"}]
# What nobody knows before it is tried: what a driver of libvirt lacks, and whether a guest, which
# has no system here, lets go of a device.
UNFORESEEN = ("not supported by the connection driver", "is still in use by the guest")


def _given(**choices):
    """Return mappings of arguments, of which any may be left out."""
    return st.fixed_dictionaries({}, optional=choices)


def _vm(state):
    whole = st.fixed_dictionaries(
        {
            "name": st.sampled_from(VMS),
            "cpu": st.integers(1, 2),
            "mem": st.sampled_from([64, 96]),
            "seed": st.just(False),
            "detach": st.just(True),
        },
        optional={
            "disks": st.sampled_from(
                [
                    [],
                    [{"name": "data", "size": 8}],
                    [{"name": "data", "size": 8}, {"name": "more", "size": 8, "format": "raw"}],
                    _DISKS,
                ]
            ),
            "interfaces": st.sampled_from(
                [[], [{"name": "eth0", "type": "network", "source": "n1"}]]
            ),
            "graphics": st.sampled_from([{"type": "vnc"}, {"type": "none"}]),
            "boot_dev": st.sampled_from(["hd", "network hd"]),
            "autostart": FLAG,
            "stop_on_reboot": FLAG,
        },
    )
    return st.tuples(st.just(state), whole)


def _named(state, names=NAMES, **choices):
    return st.tuples(
        st.just(state),
        st.builds(lambda name, more: {"name": name, **more}, names, _given(**choices)),
    )


def _network(state):
    def made(name, forward, more):
        number = NETWORKS.index(name) + 1
        cidr = {"cidr": f"192.168.{210 + number}.0/24"}
        return {
            "name": name,
            "bridge": f"svbr{number}",
            "forward": forward,
            "ipv4_config": cidr,
            **more,
        }

    args = (st.sampled_from(NETWORKS), st.sampled_from(["nat", None]), _given(autostart=FLAG))
    return st.tuples(st.just(state), st.builds(made, *args))


def _pool(state):
    def made(name, more):
        return {"name": name, "ptype": "dir", "target": f"FOLDER/{name}", **more}

    return st.tuples(
        st.just(state), st.builds(made, st.sampled_from(POOLS), _given(autostart=FLAG))
    )


_VOLUME = st.fixed_dictionaries(
    {
        "pool": st.sampled_from(POOLS),
        "name": st.sampled_from(["v1", "v2"]),
        "size": st.sampled_from([1, 2]),
    },
    optional={"format": st.sampled_from(["raw", "qcow2"])},
)
STEPS = st.one_of(
    _vm("defined"),
    _vm("running"),
    *(_named(state) for state in ("stopped", "powered_off", "rebooted")),
    _named("snapshot", external=st.just(False)),
    _named("saved"),
    _named("reverted", cleanup=FLAG),
    _named("absent", st.sampled_from(VMS)),
    *map(_network, ("network_defined", "network_running")),
    *map(_pool, ("pool_defined", "pool_running")),
    _named("pool_deleted", st.sampled_from(POOLS), purge=FLAG),
    st.tuples(st.just("volume_defined"), _VOLUME),
)


# Most states do something only where there is something.
_BEGIN = [
    ("pool_running", {"name": "p1", "ptype": "dir", "target": "FOLDER/p1"}),
    ("running", {"name": "web1", "cpu": 1, "mem": 64, "seed": False, "disks": _DISKS}),
    (
        "network_running",
        {
            "name": "n1",
            "bridge": "svbr1",
            "forward": "nat",
            "ipv4_config": {"cidr": "192.168.211.0/24"},
        },
    ),
    ("defined", {"name": "web2", "cpu": 1, "mem": 64, "seed": False}),
]


def sequences(least, most):
    """Return sequences of states, as ``(function, arguments)``."""
    begin = st.integers(0, len(_BEGIN)).map(lambda count: _BEGIN[:count])
    rest = st.lists(STEPS, min_size=least, max_size=most)
    return st.builds(lambda first, more: [*first, *more], begin, rest)


def keeps(side, steps):
    """
    Apply states one after the other; each must keep the contract of ``docs/compat.md``.

    side
        ``apply(state, given, test)``, ``world()`` and ``reset()`` of one libvirt.
    """
    side.reset()
    done = []
    for number, (state, given) in enumerate(steps):
        if state in ("snapshot", "saved"):
            # They are named by the second.
            given = {**given, "suffix": f"s{number}"}
        done.append((state, given))
        _keeps(side, state, given, done)


def _keeps(side, state, given, done):
    before = side.world()
    would = side.apply(state, given, True)
    assert side.world() == before, f"test=True changed something: {done}"
    did = side.apply(state, given, False)
    said = {"would": would, "did": did, "after": done}
    if any(one in did["comment"] for one in UNFORESEEN):
        assert did["result"] is False, said
        return
    assert _foreseen(would["changes"], did["changes"], state), said
    if did["result"] is False:
        assert would["result"] is False, said
        return
    assert did["result"] is True, said
    assert would["result"] is (None if did["changes"] else True), said
    assert bool(did["changes"]) or side.world() == before, said
    if state in ACTS or side.is_waiting(state, given):
        return
    for is_test in (True, False):
        after = side.world()
        again = side.apply(state, given, is_test)
        assert (again["result"], again["changes"]) == (True, {}), {**said, "again": again}
        assert side.world() == after, said


def _foreseen(would, did, state):
    """Return whether the changes are those that were foreseen; a snapshot's name is not known."""
    if state in ("snapshot", "saved"):
        did = {
            key: [{**one, "snapshot": True} if "snapshot" in one else one for one in rows]
            for key, rows in did.items()
        }
    return would == did
