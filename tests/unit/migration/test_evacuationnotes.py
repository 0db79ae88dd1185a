"""The notes of evacuations on several hosts: how they are combined and kept up to date."""

from hypothesis import example, given
from hypothesis import strategies as st
from saltvirt.migration.master import evacuationnotes

HOSTS = ["h1", "h2", "h3", "h4"]


def put(noted, changes, name="web"):
    """Write changes into the notes of hosts."""
    for host, hosts in changes.items():
        noted.setdefault(host, {}).pop(name, None)
        if hosts:
            noted[host][name] = hosts


def sort_away(noted, host, current_host, silent=()):
    """Return how the restore of a host classifies the VM, and what it reports."""
    names_by_host = {
        present_host: {"web"} if present_host == current_host else set()
        for present_host in (*HOSTS, current_host)
        if present_host not in silent
    }
    away = evacuationnotes.find_away(noted, host, names_by_host, set(silent))
    (kind,) = (
        field
        for field in ("to_return", "at_home", "removed", "elsewhere", "uncertain")
        if getattr(away, field)
    )
    return kind, getattr(away, kind)


def evacuated(*hosts):
    """Return the notes of a VM that evacuations have sent from host to host."""
    noted = {host: {} for host in HOSTS}
    for source, target in zip(hosts, hosts[1:], strict=False):
        put(noted, evacuationnotes.plan_changes(noted, "web", source, target))
    return noted


def test_a_vm_that_two_evacuations_moved_comes_home_and_is_not_dragged_back():
    noted = evacuated("h1", "h2", "h3")
    assert noted == {"h1": {"web": ["h2", "h3"]}, "h2": {"web": ["h3"]}, "h3": {}, "h4": {}}
    assert sort_away(noted, "h1", "h3") == ("to_return", {"web": "h3"})

    put(noted, evacuationnotes.plan_changes(noted, "web", "h3", "h1"))

    assert not any(noted.values()), "it is home: h2 only had it as a guest"


def test_a_vm_that_came_back_to_the_second_host_still_comes_home():
    noted = evacuated("h1", "h2", "h3")

    put(noted, evacuationnotes.plan_changes(noted, "web", "h3", "h2"))

    assert noted == {"h1": {"web": ["h2"]}, "h2": {}, "h3": {}, "h4": {}}
    assert sort_away(noted, "h1", "h2") == ("to_return", {"web": "h2"})


def test_a_host_that_was_off_when_the_next_was_emptied_gets_its_vm_all_the_same():
    noted = evacuated("h1", "h2")
    changes = evacuationnotes.plan_changes({"h2": {}, "h3": {}}, "web", "h2", "h3")
    put(noted, changes)

    assert noted["h1"] == {"web": ["h2"]} and noted["h2"] == {"web": ["h3"]}
    assert sort_away(noted, "h1", "h3") == ("to_return", {"web": "h3"})


def test_a_host_that_is_off_now_keeps_no_vm_from_coming_home_if_the_first_host_knows():
    noted = evacuated("h1", "h2", "h3")
    del noted["h2"]

    assert sort_away(noted, "h1", "h3", silent=["h2"]) == ("to_return", {"web": "h3"})


def test_knowledge_of_a_silent_host_is_not_guessed():
    kind, reasons = sort_away({"h1": {"web": ["h2"]}}, "h1", "h3", silent=["h2"])

    assert kind == "uncertain"
    assert "salt-run virt.migrate web h1" in reasons["web"]
    assert "salt h1 virt.evacuated '{web: null}'" in reasons["web"]
    assert sort_away({"h1": {"web": ["h2"]}}, "h1", "h3", silent=["h4"])[0] == "elsewhere"


def test_a_vm_that_no_host_has_is_gone_only_if_all_have_answered():
    noted = {"h1": {"web": ["h2"]}}

    assert sort_away(noted, "h1", "x") == ("elsewhere", {"web": "x"})
    names_by_host = {host: set() for host in HOSTS}
    assert evacuationnotes.find_away(noted, "h1", names_by_host, set()).removed == ["web"]
    away = evacuationnotes.find_away(noted, "h1", names_by_host, {"h4"})
    assert away.closed_names == [] and "not asked: h4" in away.uncertain["web"]


def test_a_vm_that_is_seen_on_two_hosts_is_left_to_the_next_call():
    names_by_host = {"h2": {"web"}, "h3": {"web"}}

    away = evacuationnotes.find_away({"h1": {"web": ["h2"]}}, "h1", names_by_host, set())

    assert away.closed_names == [] and away.uncertain["web"].startswith(
        "it is on h2 and h3 at this moment"
    )


def test_notes_that_lead_in_a_circle_end():
    noted = {"h1": {"web": ["h2"]}, "h2": {"web": ["h3"]}, "h3": {"web": ["h1", "h2"]}}

    assert evacuationnotes.trail(noted, "h1", "web") == ["h2", "h3"]


class Model:
    """The expected behaviour: a stack of the hosts that a VM was taken from."""

    def __init__(self):
        self.pile = ["h1"]

    def moved(self, target):
        """An evacuation or a restore puts the VM on a host."""
        if target in self.pile:
            del self.pile[self.pile.index(target) + 1 :]
        else:
            self.pile.append(target)

    def by_hand(self, target):
        """Move it by hand: from now on it belongs there."""
        self.pile = [target]


STEPS = st.lists(
    st.tuples(st.sampled_from(["evacuate", "restore", "by hand"]), st.sampled_from(HOSTS)),
    max_size=12,
)


@given(STEPS)
@example([("evacuate", "h2"), ("evacuate", "h3"), ("evacuate", "h2"), ("restore", "h3")])
@example([("evacuate", "h2"), ("by hand", "h1"), ("evacuate", "h2"), ("restore", "h1")])
def test_a_vm_comes_home_to_each_host_it_was_taken_from_and_to_no_other(steps):
    noted, current_host, model, hand_moves = {host: {} for host in HOSTS}, "h1", Model(), 0
    for kind, host in steps:
        if kind == "by hand":
            # A fresh host: a VM that comes by hand to where it was put counts as put there.
            hand_moves += 1
            current_host = f"x{hand_moves}"
            model.by_hand(current_host)
            continue
        if kind == "restore":
            is_back = host in noted and is_sorted_back(noted, host, current_host)
            assert is_back == (host in model.pile[:-1]), (steps, noted)
            if not is_back:
                noted.get(host, {}).pop("web", None)
                continue
        elif host == current_host:
            continue
        put(noted, evacuationnotes.plan_changes(noted, "web", current_host, host))
        current_host = host
        model.moved(host)
    assert current_host == model.pile[-1]


def is_sorted_back(noted, host, current_host):
    """Return whether a restore of a host would bring the VM back."""
    return "web" in noted[host] and sort_away(noted, host, current_host)[0] == "to_return"
