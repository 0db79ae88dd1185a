"""Give the minion in a guest's root another id; all else that the guest is, stays."""

import re
from typing import Any

import identity
from identity import Refused

_ID, _CONFIG = "/etc/salt/minion_id", "/etc/salt/minion.d/zz-salt-virt.conf"
_KEY = "/etc/salt/pki/minion/minion.pub"
_HOSTNAME, _HOSTS = "/etc/hostname", "/etc/hosts"
_ID_LINE = re.compile(r"^id:.*$", re.MULTILINE)
_LOOPBACK = re.compile(r"^(?:127\.|::1\s).*$", re.MULTILINE)


def rename(tree: Any, job: dict[str, Any]) -> None:
    """
    Give a minion the id of a job, if it has one of the job's ids and its key.

    ``job["is_written"]`` is set before the first write: until then nothing was changed.
    """
    if not identity.has_minion(tree):
        raise Refused("there is no salt-minion in it")
    config = _read(tree, _CONFIG)
    minion_id = _find_id(config) or _read(tree, _ID).strip()
    if minion_id not in job["ids"]:
        shown_id = repr(minion_id) if minion_id else "by none of the names"
        raise Refused(f"its minion is called {shown_id}, and not {job['ids'][0]!r}")
    public_key = _read(tree, _KEY).split()
    if job["public_key"] and public_key != job["public_key"].split():
        raise Refused("its minion has another key than the master has accepted for it")
    hostname, hosts = _read(tree, _HOSTNAME).strip(), _read(tree, _HOSTS)
    names = _names(job)
    job["is_written"] = True
    identity.put(tree, _CONFIG, _with_id(config, job["id_line"]), 0o640)
    identity.put(tree, _ID, f"{job['id']}\n", 0o644)
    if hostname in names:
        identity.put(tree, _HOSTNAME, f"{names[hostname]}\n", 0o644)
    new_hosts = _LOOPBACK.sub(lambda line: _replace_words(line[0], names), hosts)
    if new_hosts != hosts:
        identity.put(tree, _HOSTS, new_hosts, 0o644)
    identity.relabel(tree)


def _read(tree: Any, path: str) -> str:
    """Return a file's text, empty without such a file."""
    content = tree.read_file(path) if tree.is_file(path) else b""
    try:
        return str(content.decode())
    except UnicodeDecodeError:
        raise Refused(f"{path} in it is no text") from None


def _find_id(config: str) -> str:
    """Return the id of a configuration in the form in which this project writes it."""
    ids = [line.partition(":")[2] for line in config.splitlines() if line.startswith("id:")]
    return ids[-1].strip().strip("'\"") if ids else ""


def _with_id(config: str, id_line: str) -> str:
    if _ID_LINE.search(config):
        return _ID_LINE.sub(lambda _line: id_line, config)
    end = "" if config.endswith("\n") or not config else "\n"
    return f"{config}{end}{id_line}\n"


def _names(job: dict[str, Any]) -> dict[str, str]:
    """Return ``{name that the guest may have as a host: its new one}``, whole and short."""
    short_names = {name.split(".")[0]: job["id"].split(".")[0] for name in job["ids"]}
    return {**short_names, **dict.fromkeys((n for n in job["ids"] if "." in n), job["id"])}


def _replace_words(line: str, names: dict[str, str]) -> str:
    return re.sub(r"[^\s]+", lambda word: names.get(word[0], word[0]), line)
