"""Where evacuations have put VMs: notes of several hosts, put together and kept up."""

from hypothesis import example, given
from hypothesis import strategies as st
from saltvirt.migration.master import evacuationnotes

HOSTS = ["h1", "h2", "h3", "h4"]


def put(noted, changes, name="web"):
    """Have hosts note what has changed."""
    for host, at in changes.items():
        noted.setdefault(host, {}).pop(name, None)
        if at:
            noted[host][name] = at


def sorted_as(noted, host, at, silent=()):
    """Return what a host's restore makes of the VM, and what of it is said."""
    there = {one: {"web"} if one == at else set() for one in (*HOSTS, at) if one not in silent}
    away = evacuationnotes.find_away(noted, host, there, set(silent))
    (kind,) = (
        k for k in ("to_return", "at_home", "removed", "elsewhere", "uncertain") if getattr(away, k)
    )
    return kind, getattr(away, kind)


def evacuated(*hosts):
    """Return the notes of a VM that evacuations have sent from host to host."""
    noted = {host: {} for host in HOSTS}
    for source, to in zip(hosts, hosts[1:], strict=False):
        put(noted, evacuationnotes.plan_changes(noted, "web", source, to))
    return noted


def test_a_vm_that_two_evacuations_moved_comes_home_and_is_not_dragged_back():
    noted = evacuated("h1", "h2", "h3")
    assert noted == {"h1": {"web": ["h2", "h3"]}, "h2": {"web": ["h3"]}, "h3": {}, "h4": {}}
    assert sorted_as(noted, "h1", "h3") == ("to_return", {"web": "h3"})

    put(noted, evacuationnotes.plan_changes(noted, "web", "h3", "h1"))

    assert not any(noted.values()), "it is home: h2 only had it as a guest"


def test_a_vm_that_came_back_to_the_second_host_still_comes_home():
    noted = evacuated("h1", "h2", "h3")

    put(noted, evacuationnotes.plan_changes(noted, "web", "h3", "h2"))

    assert noted == {"h1": {"web": ["h2"]}, "h2": {}, "h3": {}, "h4": {}}
    assert sorted_as(noted, "h1", "h2") == ("to_return", {"web": "h2"})


def test_a_host_that_was_off_when_the_next_was_emptied_gets_its_vm_all_the_same():
    noted = evacuated("h1", "h2")
    off = evacuationnotes.plan_changes({"h2": {}, "h3": {}}, "web", "h2", "h3")
    put(noted, off)

    assert noted["h1"] == {"web": ["h2"]} and noted["h2"] == {"web": ["h3"]}
    assert sorted_as(noted, "h1", "h3") == ("to_return", {"web": "h3"})


def test_a_host_that_is_off_now_keeps_nobody_from_coming_home_if_the_first_knows():
    noted = evacuated("h1", "h2", "h3")
    del noted["h2"]

    assert sorted_as(noted, "h1", "h3", silent=["h2"]) == ("to_return", {"web": "h3"})


def test_what_only_a_silent_host_can_know_is_not_guessed():
    kind, said = sorted_as({"h1": {"web": ["h2"]}}, "h1", "h3", silent=["h2"])

    assert kind == "uncertain"
    assert "salt-run virt.migrate web h1" in said["web"]
    assert "salt h1 virt.evacuated '{web: null}'" in said["web"]
    assert sorted_as({"h1": {"web": ["h2"]}}, "h1", "h3", silent=["h4"])[0] == "elsewhere"


def test_a_vm_that_no_host_has_is_gone_only_if_all_have_answered():
    noted = {"h1": {"web": ["h2"]}}

    assert sorted_as(noted, "h1", "x") == ("elsewhere", {"web": "x"})
    there = {host: set() for host in HOSTS}
    assert evacuationnotes.find_away(noted, "h1", there, set()).removed == ["web"]
    away = evacuationnotes.find_away(noted, "h1", there, {"h4"})
    assert away.closed_names == [] and "not asked: h4" in away.uncertain["web"]


def test_a_vm_that_is_seen_on_two_hosts_is_left_to_the_next_call():
    there = {"h2": {"web"}, "h3": {"web"}}

    away = evacuationnotes.find_away({"h1": {"web": ["h2"]}}, "h1", there, set())

    assert away.closed_names == [] and away.uncertain["web"].startswith(
        "it is on h2 and h3 at this moment"
    )


def test_notes_that_lead_in_a_circle_end():
    noted = {"h1": {"web": ["h2"]}, "h2": {"web": ["h3"]}, "h3": {"web": ["h1", "h2"]}}

    assert evacuationnotes.trail(noted, "h1", "web") == ["h2", "h3"]


class Model:
    """What users expect: the hosts that a VM was taken from, one on the other."""

    def __init__(self):
        self.pile = ["h1"]

    def moved(self, to):
        """An evacuation or a restore puts the VM on a host."""
        if to in self.pile:
            del self.pile[self.pile.index(to) + 1 :]
        else:
            self.pile.append(to)

    def by_hand(self, to):
        """Somebody moves it: that is where it belongs now."""
        self.pile = [to]


STEPS = st.lists(
    st.tuples(st.sampled_from(["evacuate", "restore", "by hand"]), st.sampled_from(HOSTS)),
    max_size=12,
)


@given(STEPS)
@example([("evacuate", "h2"), ("evacuate", "h3"), ("evacuate", "h2"), ("restore", "h3")])
@example([("evacuate", "h2"), ("by hand", "h1"), ("evacuate", "h2"), ("restore", "h1")])
def test_a_vm_comes_home_to_each_host_it_was_taken_from_and_to_no_other(steps):
    noted, at, model, hands = {host: {} for host in HOSTS}, "h1", Model(), 0
    for kind, host in steps:
        if kind == "by hand":
            # To a host of its own: one that comes by hand to where it was put is where it was put.
            hands += 1
            at = f"x{hands}"
            model.by_hand(at)
            continue
        if kind == "restore":
            is_back = host in noted and is_sorted_back(noted, host, at)
            assert is_back == (host in model.pile[:-1]), (steps, noted)
            if not is_back:
                noted.get(host, {}).pop("web", None)
                continue
        elif host == at:
            continue
        put(noted, evacuationnotes.plan_changes(noted, "web", at, host))
        at = host
        model.moved(host)
    assert at == model.pile[-1]


def is_sorted_back(noted, host, at):
    """Return whether a restore of a host would bring the VM back."""
    return "web" in noted[host] and sorted_as(noted, host, at)[0] == "to_return"
