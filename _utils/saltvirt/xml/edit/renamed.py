"""The definition of a VM that was renamed: what libvirt and this project name after a VM."""

import posixpath
import xml.etree.ElementTree as ET

from saltvirt.xml import METADATA_NS, parse, tag, to_text
from saltvirt.xml.domain import chardev, metadata
from saltvirt.xml.edit import readdomain

_NOTES = f"{{{METADATA_NS}}}vm"


def definition(text: str, former: str, name: str, console_log: tuple[str, str]) -> str | None:
    """
    Return a renamed VM's definition, None if nothing in it is to change.

    former, name
        The names before and after the rename. libvirt has set the name already.
    console_log
        The console logs of this project, by the former and by the new name.

    Disks keep their files; a note has the names that the files may have.
    """
    root = parse(text)
    before = to_text(root)
    old_log, new_log = console_log
    for device in root.findall("devices/*"):
        log = device.find("log") if device.tag in chardev.ELEMENTS else None
        if log is not None and log.get("file") == old_log:
            log.set("file", new_log)
    variables = readdomain.firmware_variables(root)
    new_variables = variables_after(variables, former, name)
    if new_variables != variables:
        _set_variables(root, str(new_variables))
    _note_names(root, former, name)
    after = to_text(root)
    return None if after == before else after


def variables_after(path: str | None, former: str, name: str) -> str | None:
    """Return the path of the firmware's variables after a rename: libvirt names it after the VM."""
    if path is None:
        return None
    folder, file = posixpath.split(path)
    end = file.removeprefix(former)
    # "web" must not match web1_VARS.fd: that name could be another VM's.
    is_named = end != file and end[:1] in ("_", ".", "-")
    return posixpath.join(folder, f"{name}{end}") if is_named else path


def _set_variables(root: ET.Element, path: str) -> None:
    nvram = root.find("os/nvram")
    source = None if nvram is None else nvram.find("source")
    if source is not None:
        source.set("file", path)
    elif nvram is not None:
        nvram.text = path


def _note_names(root: ET.Element, former: str, name: str) -> None:
    """Note the former names that a disk's file or volume still has."""
    noted_names = (*metadata.read(root).former, former)
    files = [posixpath.basename(disk["path"] or "") for disk in readdomain.disk_sources(root)]
    names = [
        noted_name
        for noted_name in dict.fromkeys(noted_names)
        if noted_name != name and any(file.startswith(f"{noted_name}_") for file in files)
    ]
    notes = root.find(f"metadata/{_NOTES}")
    if notes is None:
        if not names:
            return
        notes = tag(_NOTES)
        outer = root.find("metadata")
        if outer is None:
            outer = tag("metadata")
            root.append(outer)
        outer.append(notes)
    for element in notes.findall(f"{{{METADATA_NS}}}former"):
        notes.remove(element)
    notes.extend(tag(f"{{{METADATA_NS}}}former", text=noted_name) for noted_name in names)
