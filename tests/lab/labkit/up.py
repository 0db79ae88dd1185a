"""Bring the lab up: boot what is kept, or make hypervisors of bare hosts as the docs say."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import permutations

from labkit import (
    hypervisors,
    images,
    kept,
    mirror,
    node,
    plain,
    roots,
    saltd,
    segment,
    temporary,
)
from labkit.say import say
from labkit.settings import MASTER, SWITCH, LabError, host

# The mark of a node that the formula has made a hypervisor.
MADE = "made"


def _memory_mib(count):
    with open("/proc/meminfo", encoding="ascii") as handle:
        total_kib = int(handle.readline().split()[1])
    return total_kib // 1024 * 3 // 4 // count


def _together(do, names):
    with ThreadPoolExecutor() as pool:
        return list(pool.map(do, names))


def _prepare(lab, hosts, wanted_images, is_fresh):
    """Build whatever is missing in the cache, as much at once as does not wait for another."""
    releases = sorted({one.release for one in hosts})
    goals = [(roots.base, release) for release in releases]
    goals += [(images.ensure, lab, [name]) for name in wanted_images]
    goals += [(saltd.master_stack, lab), (segment.stack,), (mirror.pypi,)]
    last = mirror.debian if is_fresh else partial(hypervisors.packages, lab)
    goals += [(last, release) for release in releases]
    with ThreadPoolExecutor(len(goals)) as pool:
        for future in [pool.submit(*goal) for goal in goals]:
            future.result()


class Up:
    """One ``lab up``: which hosts, from which layers."""

    def __init__(self, lab, hosts, *, is_fresh, share=None):
        self.lab, self.hosts = lab, hosts
        self.names = [one.name for one in hosts]
        self.memory_mib = _memory_mib(share or len(hosts))
        root = hypervisors.bare_stack if is_fresh else hypervisors.stack
        self.stacks = {one.name: root(lab, one) for one in hosts}

    def nodes(self):
        """Make the nodes that have never booted."""
        for one in self.hosts:
            hypervisors.create(self.lab, one, self.stacks[one.name], self.memory_mib)

    def bare_nodes(self):
        """Make the hosts of a plain lab, which have never booted."""
        for one in self.hosts:
            hypervisors.create_bare(self.lab, one, self.stacks[one.name])

    def join(self):
        """Power the hosts on and accept their keys."""
        _together(lambda one: node.power_on(self.lab, one.name), self.hosts)
        for name in self.names:
            saltd.accept(self.lab, name)
        saltd.wait_until_ready(self.lab, self.names)
        say(f"{', '.join(self.names)}: bare hosts with a minion")

    def formula(self):
        """Make them hypervisors, as docs/add-a-hypervisor.md says."""
        known = sorted(name for name in node.alive(self.lab) if name.startswith("hyper"))
        saltd.serve(node.root(self.lab, MASTER))
        saltd.pillar(self.lab, {name: hypervisors.pillar(host(name)) for name in known})
        saltd.must(self.lab, "salt-run", "saltutil.sync_all", "--out=quiet")
        saltd.must(self.lab, "salt-run", "virt.allow", *self.names, "--out=quiet")
        together = ["-L", ",".join(self.names)]
        saltd.must(self.lab, "salt", *together, "saltutil.refresh_pillar", "--out=quiet")
        saltd.apply(self.lab, self.names, "hypervisor")
        # The first to be ready did not yet know the last.
        saltd.apply(self.lab, known, "hypervisor.firewall")
        if shut_out := _shut_out(self.lab, known):
            say(f"{shut_out}; once more, as virt.setup_check would say")
            saltd.must(self.lab, "salt", "-L", ",".join(known), "saltutil.refresh_grains")
            saltd.apply(self.lab, known, "hypervisor.firewall")
        # What is kept is kept for long.
        if shut_out := _shut_out(self.lab, known):
            raise LabError(shut_out)
        for name in self.names:
            (self.lab.node_dir(name) / MADE).touch()
        say(f"{', '.join(self.names)}: hypervisors, by the formula")


def _shut_out(lab, names):
    """Return why a host does not reach the libvirt of another one, if that is so."""
    for one, other in permutations(names, 2):
        knock = f"exec 3<>/dev/tcp/{lab.host_ip(other)}/16514"
        argv = node.enter(node.pid_of(lab, one), ["timeout", "10", "bash", "-c", knock])
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"{one} does not get to the libvirt of {other}: {done.stderr.strip()}"
    return None


def _first(lab, hosts, is_fresh):
    up = Up(lab, hosts, is_fresh=is_fresh)
    stacks = {SWITCH: segment.stack(), MASTER: saltd.master_stack(lab), **up.stacks}
    store = kept.Kept(lab, stacks)
    if store.is_there() and not is_fresh:
        return _again(lab, store, stacks)
    segment.create(lab)
    saltd.create_master(lab, stacks[MASTER])
    node.power_on(lab, SWITCH)
    node.power_on(lab, MASTER)
    up.nodes()
    digest = kept.served()
    up.join()
    up.formula()
    if not is_fresh:
        say("powering off, to keep what was made for the next time")
        _together(lambda name: node.power_off(lab, name), [*up.names, MASTER, SWITCH])
        store.keep(digest)
        node.power_on(lab, SWITCH)
        _together(lambda name: node.power_on(lab, name), [MASTER, *up.names])
        saltd.wait_until_ready(lab, up.names)
    return up.names


def _again(lab, store, stacks):
    """Boot kept nodes; bring them the checkout's modules if those have changed."""
    store.touch()
    for name, stack in stacks.items():
        node.create(lab, name, [store.layer(name), *stack], **_plugs(lab, name))
    node.power_on(lab, SWITCH)
    names = [name for name in stacks if name not in (SWITCH, MASTER)]
    _together(lambda name: node.power_on(lab, name), [MASTER, *names])
    say(f"{', '.join(names)}: booted as the formula left them")
    saltd.wait_until_ready(lab, names)
    if store.served() != kept.served():
        saltd.sync(lab, names)
    for name in names:
        (lab.node_dir(name) / MADE).touch()
    return names


def _plugs(lab, name):
    if name == SWITCH:
        return segment.PLUGS
    return saltd.plugs(lab) if name == MASTER else hypervisors.plugs(lab, host(name))


def up(lab, count, release, is_fresh, wanted_images):
    """Bring the lab up; what already runs stays as it is. Return the names of all hosts."""
    there = node.alive(lab)
    wanted = [host(f"hyper{n}", release) for n in range(1, count + 1)]
    images.known(wanted_images)
    _prepare(lab, wanted, wanted_images, is_fresh)
    if not there:
        _make_root(lab)
        return _first(lab, wanted, is_fresh)
    names = [one.name for one in wanted]
    made = [name for name in names if (lab.node_dir(name) / MADE).exists()]
    _power_on(lab, set(made) - set(there))
    missing = [one for one in wanted if one.name not in made]
    if not missing:
        saltd.wait_until_ready(lab, names)
        say(f"already up: {', '.join(names)}")
        return names
    more = Up(lab, missing, is_fresh=is_fresh, share=count)
    more.hosts = [one for one in missing if one.name not in there]
    more.nodes()
    more.join()
    more.formula()
    return names


def plain_up(lab, count, release, wanted_images):
    """Bring a plain lab up; what already runs stays as it is. Return the names of all hosts."""
    there = node.alive(lab)
    wanted = [host(f"hyper{n}", release) for n in range(1, count + 1)]
    images.known(wanted_images)
    _prepare(lab, wanted, wanted_images, is_fresh=True)
    plain.salt_media(lab.salt)
    if not there:
        _make_root(lab)
        plain.mark(lab)
        segment.create(lab)
        plain.create_master(lab, saltd.master_stack(lab))
        node.power_on(lab, SWITCH)
        node.power_on(lab, MASTER)
    missing = [one for one in wanted if one.name not in there]
    if missing:
        more = Up(lab, missing, is_fresh=True)
        more.bare_nodes()
        more.join()
    return [one.name for one in wanted]


def _power_on(lab, names):
    for name in sorted(names):
        node.power_on(lab, name)


def _make_root(lab):
    if lab.root.exists() and any(one.name != temporary.NAME for one in lab.root.iterdir()):
        raise LabError(
            f"{lab.root} is there, of a lab that is off: lab on {SWITCH}, lab on "
            f"{MASTER}, and each host; or lab down"
        )
    lab.root.mkdir(parents=True, exist_ok=True)
    lab.root.chmod(0o700)
    lab.shared.mkdir()
