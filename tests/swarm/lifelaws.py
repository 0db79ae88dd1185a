"""
The laws of a life: what is wrong with what an inspector has seen, as lines.

Pure: ``seen`` is what ``swarmkit.seen.look`` returns. The first hold at every moment; the others as
soon as no command and no job is at work.
"""

from collections import Counter, defaultdict

OWN = "/run/swarm/own/img/"
# libvirt's: paused, as it is being moved.
_IN_BETWEEN = [3, 2]


def _all(seen):
    """Yield ``(host, name, domain)``."""
    for host, one in seen["hosts"].items():
        for name, domain in one["domains"].items():
            yield host, name, domain


def _runs(domain):
    return domain["is_up"] and not domain["is_coming"] and domain["state"] != _IN_BETWEEN


def always(seen, room_mib):
    """Yield what must not be at any moment."""
    uuids = defaultdict(set)
    for _host, name, domain in _all(seen):
        uuids[name].add(domain["uuid"])
    for name, found in uuids.items():
        if len(found) > 1:
            yield f"two VMs are called {name}: {sorted(found)}"
    yield from _on_two(seen, "runs", _runs)
    yield from _on_two(seen, "starts with its host", lambda domain: domain["starts"])
    for host, one in seen["hosts"].items():
        taken = sum(domain["memory_mib"] for domain in one["domains"].values())
        if taken > room_mib:
            yield f"{host} has given {taken} MiB of {room_mib}: {sorted(one['domains'])}"


def _on_two(seen, what, does):
    found = defaultdict(list)
    for host, _name, domain in _all(seen):
        if does(domain):
            found[domain["uuid"]].append(host)
    for uuid, hosts in found.items():
        if len(hosts) > 1:
            yield f"{_called(seen, uuid)} {what} on {hosts}"


def _called(seen, uuid):
    return next(name for _host, name, domain in _all(seen) if domain["uuid"] == uuid)


def there(seen):
    """Return ``{name: hosts}`` of the VMs that are somewhere whole: their definition and disks."""
    found = defaultdict(list)
    for host, name, domain in _all(seen):
        if domain["is_defined"] and not domain["is_kept"] and not _missing(seen, host, domain):
            found[name].append(host)
    return dict(found)


def _missing(seen, host, domain):
    files = seen["hosts"][host]["files"]
    return [path for path in domain["files"] if path.removeprefix(OWN) not in files]


def pending(seen):
    """Return the names of which something is on record."""
    lists = [seen["orders"], *(one["records"] for one in seen["hosts"].values())]
    return {record["name"] for records in lists for record in records if _is_begun(record)}


def _is_begun(record):
    return record["purpose"] not in ("evacuated", "cancelled", "trash", "undo")


def at_rest(seen):
    """Yield what must not be when nobody is at work."""
    begun = pending(seen)
    homes = Counter(name for _host, name, domain in _all(seen) if not domain["is_kept"])
    for name, count in homes.items():
        if count > 1 and name not in begun:
            yield f"{name} is on {count} hosts, and nothing of that is on record"
    for host, name, domain in _all(seen):
        if not domain["is_defined"] and name not in begun:
            yield f"{name} has no definition on {host}"
        missing = _missing(seen, host, domain)
        if missing and name not in begun:
            yield f"{name} lacks {missing} on {host}"
    yield from _orphans(seen, begun)


def _orphans(seen, begun):
    for host, one in seen["hosts"].items():
        known = {path for domain in one["domains"].values() for path in domain["files"]}
        known |= {path for record in one["records"] for path in record["paths"]}
        for file in one["files"]:
            if OWN + file not in known and not file.rpartition("/")[2].startswith("."):
                yield f"nobody's file on {host}: {file}"
    names = {name for _host, name, _domain in _all(seen)}
    for key in set(seen["keys"]) - names - begun:
        yield f"nobody's key: {key}"
    for name in names - set(seen["keys"]) - begun:
        yield f"{name} has no key"


class Fates:
    """What is known of each name: whether a VM must be there, must not, or may be either."""

    def __init__(self):
        self._is_there, self._tried, self._marks = {}, defaultdict(set), {}

    def tried(self, what, name):
        """Note that somebody has tried to make a VM, or to remove it."""
        self._tried[name].add(what)

    def wrong(self, seen, names):
        """Yield what is not as it must be of names, and note what they are now."""
        homes, begun = there(seen), pending(seen)
        for name in names:
            was, now = self._is_there.get(name, False), name in homes
            if was and not now and "purge" not in self._tried[name]:
                yield f"{name} is lost"
            if now and not was and "init" not in self._tried[name]:
                yield f"{name} is back, which nobody has made"
            if name not in begun:
                self._is_there[name] = now
                self._tried[name].clear()
                if not now:
                    self._marks.pop(name, None)
            yield from self._changed(seen, name, homes.get(name, []), name in begun)

    def _changed(self, seen, name, hosts, is_begun):
        for host in hosts:
            domain = seen["hosts"][host]["domains"][name]
            mark = self._marks.get(name)
            if mark is None or mark[0] != domain["uuid"] or is_begun:
                continue
            if seen["hosts"][host]["files"].get(f"{name}_system.qcow2") != mark[1]:
                yield f"the disk of {name} on {host} is not what was written into it"

    def unmarked(self, seen):
        """Return ``(host, name, UUID)`` of VMs that nobody is at, and whose disks have no mark."""
        begun, homes = pending(seen), there(seen)
        out = []
        for name, hosts in homes.items():
            uuid = seen["hosts"][hosts[0]]["domains"][name]["uuid"]
            if name not in begun and self._marks.get(name, ("",))[0] != uuid:
                out.append((hosts[0], name, uuid))
        return out

    def marked(self, name, uuid, digest):
        """Note what a disk is from now on."""
        self._marks[name] = (uuid, digest)

    @property
    def alive(self):
        """The names of the VMs that must be there."""
        return sorted(name for name, is_there in self._is_there.items() if is_there)
