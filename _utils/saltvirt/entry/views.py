"""
The views of answers: what a person sees in a terminal, as plain data.

A view is ``{"said": [sentence]}``, or a table: ``{"titles": [...], "rows": [[...]], "sizes":
[titles of columns with bytes], "headings": [[number of a row, line above it]], "said": [...]}``.
The outputters ``virt_done`` and ``virt_table``
show it: they know the terminal's width, and escape and wrap each text. A sentence that begins with
spaces is indented. Each function of :data:`_VIEWS` gets the answer and the call's arguments, and
reads nothing else. Runner functions that are not there have an outputter of their own, or are shown
as plain lines.
"""

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from saltvirt.core.findings import NO_ANSWER
from saltvirt.entry import statusview

View = dict[str, Any]
Arguments = Mapping[str, Any]
_DETAILS = "details"
_BESIDE = ("unreachable", "failed", "duplicates", "last_seen", _DETAILS)
_TOLD = "told"


def find(name: str, answer: Any, arguments: Arguments) -> View | None:
    """
    Return the view of a runner function's answer; None if it has none.

    An answer of another shape, such as one of a cell of another release, has none, too.
    """
    make = _VIEWS.get(name)
    try:
        return make(answer, arguments) if make is not None else None
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


def said(sentences: Iterable[str]) -> View:
    """Return a view of sentences."""
    return {"said": list(sentences)}


def table(
    titles: Sequence[str],
    rows: Iterable[Sequence[Any]],
    sizes: Sequence[str] = (),
    sentences: Iterable[str] = (),
    empty: str = "",
) -> View:
    """
    Return a view of a table with sentences below it.

    sizes
        The titles of columns with bytes.
    empty
        The sentence that is shown instead of a table without rows.
    """
    row_lists = [list(row) for row in rows]
    lines = [*([empty] if empty and not row_lists else []), *sentences]
    return {"titles": list(titles), "rows": row_lists, "sizes": list(sizes), "said": lines}


def hosts_beside(answer: Mapping[str, Any]) -> list[str]:
    """Return the sentences about hosts without an answer, and about VMs that several hosts have."""
    lines = [f"{host}: {NO_ANSWER}" for host in answer.get("unreachable", ())]
    lines += [f"{host}: {reason}" for host, reason in sorted(answer.get("failed", {}).items())]
    for name, hosts in sorted(answer.get("duplicates", {}).items()):
        lines.append(f"VM {name!r} is on {' and '.join(hosts)}: remove all but one, on their hosts")
    return lines


def _of_hosts(answer: Mapping[str, Any]) -> dict[str, Any]:
    return {host: value for host, value in answer.items() if host not in _BESIDE}


def _told_lines(answer: Mapping[str, Any]) -> list[str]:
    """Return the sentences about what hosts have done with new lists and certificates."""
    return [f"{host}: {outcome}" for host, outcome in sorted(answer.get(_TOLD, {}).items())]


def _last_seen_lines(answer: Mapping[str, Any]) -> list[str]:
    return [
        f"{host} had these VMs when it was last asked: {', '.join(names)}; no command of this "
        "master reaches them any more"
        for host, names in sorted(answer.get("last_seen", {}).items())
    ]


def _allow(answer: Any, arguments: Arguments) -> View:
    if "allowed" in answer:
        lines = [f"{host} is a hypervisor of this master now" for host in answer["allowed"]]
        for host, serials in sorted(answer.get("revoked", {}).items()):
            lines.append(f"{host}: {len(serials)} older certificates with its name were revoked")
        return said([*lines, *_told_lines(answer)])
    titles = ("MINION", "WHAT", "WHY", "FINGERPRINT")
    return table(titles, _key_rows(answer), sentences=_member_lines(answer))


def _key_rows(answer: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield each minion with the fingerprint of its key, to compare with that on the host."""
    for minion, entry in sorted(answer["hypervisors"].items()):
        yield minion, "hypervisor", entry["by"], entry["fingerprint"]
    for minion, entry in sorted(answer.get("candidates", {}).items()):
        guest = f"; but it is a VM on {', '.join(entry['vm_on'])}" if entry["vm_on"] else ""
        yield minion, "candidate", entry["why"] + guest, entry["fingerprint"]
    for key, word, reason in (
        ("waiting", "waiting", "its key waits for: salt-key -a"),
        ("others", "other", ""),
    ):
        for minion, fingerprint in sorted(answer.get(key, {}).items()):
            yield minion, word, reason, fingerprint


def _member_lines(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the sentences below the table of minions."""
    if not answer["hypervisors"]:
        yield "there are no hypervisors yet"
    for key, words in (
        ("disallowed", "not allowed any more"),
        ("without_key", "allowed, but without an accepted key"),
    ):
        if answer.get(key):
            yield f"{words}: {', '.join(answer[key])}"
    for minion, problem in sorted(answer.get("odd_ids", {}).items()):
        shown_id = minion.encode("unicode_escape").decode()
        yield f"an id of a stranger, not of a host: {shown_id} ({problem})"
    if answer.get("more_others"):
        yield f"and {answer['more_others']} more minions"
    if answer.get("allow_them"):
        yield f"to allow the candidates: {answer['allow_them']}"


def _disallow(answer: Any, _arguments: Arguments) -> View:
    lines = [f"{host} is no hypervisor of this master any more" for host in answer["disallowed"]]
    if answer.get("revoked"):
        lines.append(f"revoked: certificates {', '.join(map(str, answer['revoked']))}")
    return said([*lines, *_told_lines(answer), *_last_seen_lines(answer)])


def _list(answer: Any, _arguments: Arguments) -> View:
    """Return the table of a list without further data, as of cells."""
    rows = [
        (name, host, state)
        for host, states in _of_hosts(answer).items()
        for state, names in states.items()
        for name in names
    ]
    rows += [
        (name, host, "last seen there")
        for host, names in sorted(answer.get("last_seen", {}).items())
        for name in names
    ]
    lines = hosts_beside(answer)
    return table(("NAME", "HOST", "STATE"), sorted(rows), sentences=lines, empty="no VMs")


def _find(answer: Any, _arguments: Arguments) -> View:
    rows: list[list[Any]] = []
    for name, found in sorted(answer.items()):
        places = [[name, host, state] for host, state in sorted(found["hosts"].items())]
        places += [[name, host, "a build or a leftover"] for host in found["traces"]]
        places += [
            [name, host, f"was there when it was last asked; {why}"]
            for host, why in sorted(found["may_have"].items())
        ]
        rows += places or [[name, None, "no host has it"]]
        orders = found["orders"] if "orders" in found else {"this master": found.get("order")}
        rows += [
            [name, None, f"a command of {master} is at work: {phase}"]
            for master, phase in sorted(orders.items())
            if phase
        ]
        rows += [[name, host, why] for host, why in sorted(found.get("failed", {}).items())]
    return table(("NAME", "HOST", "STATE"), rows)


def _purge(answer: Any, arguments: Arguments) -> View:
    describe = _plan_lines if arguments.get("dry_run") is True else _details_lines
    lines = []
    for host, outcomes in _of_hosts(answer).items():
        for name, outcome in outcomes.items():
            lines.append(f"{name} on {host}: {outcome}")
            lines += describe(answer.get(_DETAILS, {}).get(name))
    return said(lines)


def _details_lines(details: Any) -> list[str]:
    """Return the sentences about what a purge has removed, and what it has left."""
    if details is None:
        return []
    lines = [f"  removed: {path}" for path in details["removed"]]
    until = details["until"]
    lines += [f"  in the trash until {until}: {path}" for path in details["trashed"]]
    lines += [f"  stays: {path}: {reason}" for path, reason in sorted(details["left"].items())]
    if details["undo"]:
        lines += [f"  not kept: {sentence}" for sentence in details["lost"]]
        lines.append(f"  undo: {details['undo']}")
    else:
        lines.append("  this cannot be undone")
    return lines


def _plan_lines(details: Any) -> list[str]:
    """Return the sentences about what a purge would remove, and what it would leave."""
    lines = [f"  would be removed: {path}" for path in details["removed"]]
    until = details["until"]
    lines += [f"  would go into the trash until {until}: {path}" for path in details["trashed"]]
    lines += [f"  would stay: {path}: {reason}" for path, reason in sorted(details["left"].items())]
    if not details["undo"]:
        return [*lines, "  this could not be undone"]
    lines += [f"  would not be kept: {sentence}" for sentence in details["lost"]]
    return [*lines, f"  undo would be: {details['undo']}"]


def _undo(answer: Any, arguments: Arguments) -> View:
    name, host = answer["name"], answer["host"]
    if arguments.get("dry_run") is True:
        return said([f"{name} would be back on {host}", *_back_lines(answer)])
    lines = [f"{name} is back on {host}, and is off", *_back_lines(answer)]
    if answer["has_key"]:
        lines.append("  the master accepts the key of its minion again")
    return said([*lines, f"  start it: salt-run virt.start {shlex.quote(name)}"])


def _back_lines(answer: Any) -> list[str]:
    lines = [f"  {path}" for path in answer["files"]]
    if answer["autostart"]:
        lines.append("  it starts with its host, as before")
    return [*lines, *(f"  not back: {sentence}" for sentence in answer["lost"])]


def _trash(answer: Any, _arguments: Arguments) -> View:
    rows, lines = [], hosts_beside(answer)
    for host, entries in sorted(_of_hosts(answer).items()):
        for number, entry in sorted(entries.items()):
            files = [*entry["files"], *entry["volumes"]]
            row = (entry["vm"], host, number, entry["bytes"], entry["since"], entry["until"])
            rows.append((*row, "; ".join(files) or None))
            lines += [f"{host}, {number}: {line}" for line in entry["away"] or ()]
            if entry.get("undo"):
                lines.append(f"{entry['vm']}: undo: {entry['undo']}")
    if rows:
        lines.append("to free the room for good: salt-run virt.trash_empty HOST ENTRY")
    titles = ("VM", "HOST", "ENTRY", "SIZE", "SINCE", "UNTIL", "FILES")
    return table(titles, rows, ["SIZE"], lines, "the trash is empty")


def _trash_restore(answer: Any, _arguments: Arguments) -> View:
    lines = []
    for host, back in _of_hosts(answer).items():
        lines += [f"{host}: {path} is back" for path in back["files"]]
        if back.get("definition"):
            lines.append(
                f"{host}: the VM is not defined; its definition is shown by --out=json, to be "
                "defined by virt.define_xml_str"
            )
    return said(lines)


def _trash_empty(answer: Any, arguments: Arguments) -> View:
    title = "WOULD FREE" if arguments.get("dry_run") is True else "FREED"
    rows = [
        (host, entry, freed)
        for host, entries in sorted(_of_hosts(answer).items())
        for entry, freed in sorted(entries.items())
    ]
    titles = ("HOST", "ENTRY", title)
    return table(titles, rows, [title], hosts_beside(answer), "nothing was in the trash")


def _image_pull(answer: Any, arguments: Arguments) -> View:
    image = arguments.get("image")
    return said(
        f"{host} has {image} ({str(digest)[:12]})"
        for host, digest in sorted(_of_hosts(answer).items())
    )


def _image_prune(answer: Any, arguments: Arguments) -> View:
    title = "WOULD FREE" if arguments.get("dry_run") is True else "FREED"
    rows = [
        (host, digest[:12], freed)
        for host, images in sorted(_of_hosts(answer).items())
        for digest, freed in sorted(images.items())
    ]
    empty = "all cached images are used or new: nothing to remove"
    return table(("HOST", "IMAGE", title), rows, [title], hosts_beside(answer), empty)


def _image_build(answer: Any, _arguments: Arguments) -> View:
    lines = []
    for host, image in answer.items():
        features = [
            words
            for key, words in (("has_minion", "a minion"), ("has_cloud_init", "cloud-init"))
            if image[key]
        ]
        inside = f" with {' and '.join(features)}" if features else ""
        lines.append(f"{host}: {image['path']} is built: {image['os'] or 'some system'}{inside}")
    return said(lines)


def _minion_packages(answer: Any, _arguments: Arguments) -> View:
    folder = answer["folder"]
    if "removed" in answer:
        return said([f"{len(answer['removed'])} files were removed from {folder}"])
    lines = [f"Salt {answer['version']} for guests ({answer['kind']}) is in {folder}"]
    lines += [f"  fetched: {name}" for name in answer["fetched"]]
    lines += [f"  there already: {name}" for name in answer["kept"]]
    return said(lines)


def _authorize(answer: Any, _arguments: Arguments) -> View:
    name, host = answer["name"], answer["host"]
    return said(
        [f"{host} may make {name} until {answer['until']}; undo: salt-run virt.unauthorize {name}"]
    )


def _unauthorize(_answer: Any, arguments: Arguments) -> View:
    return said([f"no host may make {arguments['name']} for this master any more"])


def _next_host(answer: Any, _arguments: Arguments) -> View:
    return said([str(answer)])


def _settle(answer: Any, _arguments: Arguments) -> View:
    lines = [f"{name}: {outcome}" for name, outcome in sorted(answer["settled"].items())]
    return said([*(lines or ["nothing is left to settle"]), *hosts_beside(answer)])


def _maintenance(answer: Any, _arguments: Arguments) -> View:
    return said(
        f"{host} is in maintenance: it gets no new VMs; its own VMs stay"
        if is_on
        else f"{host} is not in maintenance: it gets new VMs"
        for host, is_on in answer.items()
    )


def _certificates(answer: Any, _arguments: Arguments) -> View:
    titles = ("HOST", "PURPOSE", "STATE", "DAYS LEFT", "ENDS", "SIGNED BY", "SERIAL")
    keys = ("host", "purpose", "state", "days_left", "not_after", "signer", "serial")
    rows = [[_text(row[key]) if key == "serial" else row[key] for key in keys] for row in answer]
    return table(titles, rows, empty="there are no certificates")


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _by_host(answer: Any, _arguments: Arguments) -> View:
    return said(f"{host}: {outcome}" for host, outcome in sorted(answer.items()))


def _status(answer: Any, _arguments: Arguments) -> View:
    return said(statusview.lines(answer))


def _revoke(answer: Any, _arguments: Arguments) -> View:
    lines = [
        f"{host} is no hypervisor of this master any more" for host in answer.get("disallowed", ())
    ]
    serials = ", ".join(map(str, answer["revoked"]))
    lines.append(f"revoked: certificates {serials}" if serials else "nothing was left to revoke")
    return said([*lines, *_told_lines(answer), *_last_seen_lines(answer)])


def _rotate(answer: Any, _arguments: Arguments) -> View:
    hosts = ", ".join(answer["rotated"])
    return said([f"the authority is new; hosts with certificates of it: {hosts or 'none'}"])


def _export(answer: Any, _arguments: Arguments) -> View:
    return said([f"the authority is in {answer}; keep it apart from its passphrase"])


def _import(answer: Any, _arguments: Arguments) -> View:
    return said([f"the authority is in {answer} again"])


def _help(answer: Any, _arguments: Arguments) -> View:
    if "command" in answer:
        return said(_help_lines(answer["command"], answer["related"]))
    rows: list[tuple[str, str]] = []
    headings = []
    for task in answer["tasks"]:
        headings.append([len(rows), task["task"]])
        for command in task["commands"]:
            mark = " *" if command["on"] == "hosts" else ""
            rows.append((f"{command['name']}{mark}", command["does"]))
    lines = ["", "typed as: salt-run COMMAND …; with *: salt HOST COMMAND …"]
    lines.append("more about one: salt-run virt.help COMMAND")
    return {**table(("COMMAND", "WHAT IT DOES"), rows, sentences=lines), "headings": headings}


def _help_lines(command: Mapping[str, Any], related: Sequence[str]) -> Iterable[str]:
    """Yield the lines about one command; each part begins with an empty line."""
    required, _bracket, optional = command["usage"].partition(" [")
    yield required
    if optional:
        yield f"    [{optional}"
    yield ""
    also = f" Also called: {', '.join(command['also'])}." if command["also"] else ""
    does = "It changes something." if command["changes"] else "It changes nothing."
    yield f"{command['does']} {does}{also}"
    if command["arguments"]:
        yield ""
    yield from (f"  {name}: {text}" for name, text in command["arguments"].items())
    for paragraph in command["more"]:
        yield from ("", paragraph)
    if command["undo"]:
        yield from ("", f"Undo: {command['undo']}.")
    if command["examples"]:
        yield from ("", "Example:", *(f"  {line}" for line in command["examples"]))
    if related:
        yield from ("", f"Related: {', '.join(related)}.")


_VIEWS: Mapping[str, Callable[[Any, Arguments], View]] = {
    "virt.help": _help,
    "virt.allow": _allow,
    "virt.disallow": _disallow,
    "virt.list": _list,
    "virt.find": _find,
    "virt.status": _status,
    "virt.purge": _purge,
    "virt.undo": _undo,
    "virt.trash": _trash,
    "virt.trash_restore": _trash_restore,
    "virt.trash_empty": _trash_empty,
    "virt.image_pull": _image_pull,
    "virt.image_prune": _image_prune,
    "virt.image_build": _image_build,
    "virt_image.minion_packages": _minion_packages,
    "virt.authorize": _authorize,
    "virt.unauthorize": _unauthorize,
    "virt.next_host": _next_host,
    "virt.settle": _settle,
    "virt.maintenance": _maintenance,
    "virt_pki.list": _certificates,
    "virt_pki.renew": _by_host,
    "virt_pki.revoke": _revoke,
    "virt_pki.rotate_ca": _rotate,
    "virt_pki.export": _export,
    "virt_pki.import": _import,
}
