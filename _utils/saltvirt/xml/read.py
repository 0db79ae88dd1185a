"""From domain XML to the plain data of ``virt.vm_info`` and its parts."""

from saltvirt.xml import METADATA_NS, parse, tag, to_text


def domain(text):
    """Return the parsed domain."""
    return parse(text)


def nics(root):
    """Return ``{mac: {type, mac, source, model, ...}}``."""
    out = {}
    for interface in root.iterfind("devices/interface"):
        nic = {"type": interface.get("type")}
        for child in interface:
            if child.tag == "mac":
                nic["mac"] = child.get("address")
            elif child.tag == "model":
                nic["model"] = child.get("type")
            elif child.tag == "target":
                nic["target"] = child.get("dev")
            elif child.attrib:
                nic[child.tag] = dict(child.attrib)
        if "mac" in nic:
            out[nic["mac"]] = nic
    return out


def macs(root):
    """Return the MAC addresses of a VM's NICs."""
    found = (mac.get("address") for mac in root.iterfind("devices/interface/mac"))
    return [mac for mac in found if mac]


def graphics(root):
    """Return the attributes of the VM's first display, ``"None"`` for those it lacks."""
    keys = ("autoport", "keymap", "listen", "port", "type")
    element = root.find("devices/graphics")
    if element is None:
        return dict.fromkeys(keys, "None")
    out = {key: element.get(key, "None") for key in keys}
    if out["listen"] == "None":
        listen = element.find("listen")
        out["listen"] = listen.get("address", "None") if listen is not None else "None"
    return out


def loader(root):
    """Return ``{path: ...}`` of the VM's firmware, with its attributes."""
    element = root.find("os/loader")
    if element is None:
        return {"path": "None"}
    return {"path": element.text or "None", **element.attrib}


def disk_sources(root):
    """Return ``[{target, device, type, path, format}]`` of a VM's disks."""
    out = []
    for disk in root.iterfind("devices/disk"):
        target, source, driver = disk.find("target"), disk.find("source"), disk.find("driver")
        if target is None:
            continue
        out.append(
            {
                "target": target.get("dev"),
                "device": disk.get("device", "disk"),
                "type": disk.get("type"),
                "path": _disk_path(source),
                "format": driver.get("type", "raw") if driver is not None else "raw",
                "backing": _backing(disk.find("backingStore")),
                "is_readonly": disk.find("readonly") is not None,
            }
        )
    return out


def _disk_path(source):
    if source is None:
        return None
    if source.get("pool"):
        return f"{source.get('pool')}/{source.get('volume')}"
    if source.get("protocol"):
        return f"{source.get('protocol')}:{source.get('name')}"
    return source.get("file") or source.get("dev") or source.get("dir")


def _backing(store):
    if store is None or store.find("source") is None:
        return None
    kind = store.find("format")
    return {"path": _disk_path(store.find("source")),
            "format": kind.get("type") if kind is not None else None}  # fmt: skip


def links(root):
    """Return what a VM's NICs need of a host, as :func:`saltvirt.nics.needs` does."""
    out, is_tagged = {"bridges": set(), "networks": set(), "links": set()}, False
    kinds = {"bridge": "bridges", "network": "networks", "direct": "links"}
    for interface in root.iterfind("devices/interface"):
        kind, source = interface.get("type"), interface.find("source")
        port = interface.find("virtualport")
        is_switch = port is not None and port.get("type") == "openvswitch"
        if kind in kinds and source is not None:
            key = "links" if kind == "bridge" and is_switch else kinds[kind]
            out[key].add(source.get({"direct": "dev"}.get(kind, kind)))
            is_tagged |= key == "bridges" and interface.find("vlan") is not None
    return {**{key: sorted(filter(None, values)) for key, values in out.items()},
            "bridge_vlans": is_tagged}  # fmt: skip


def boot_files(root):
    """Return the files of the host that a VM boots from: kernel, initial RAM disk, firmware."""
    return [root.findtext(f"os/{part}") for part in ("kernel", "initrd", "loader")
            if root.findtext(f"os/{part}")]  # fmt: skip


def firmware_variables(root):
    """Return the file that a VM's firmware keeps its variables in; None if there is none here."""
    element, chosen = root.find("os/nvram"), root.find("os[@firmware='efi']")
    source = element.find("source") if element is not None else None
    if source is not None:
        return None if source.get("protocol") else _disk_path(source)
    if element is not None and element.text:
        return element.text
    if chosen is None or chosen.find("loader[@stateless='yes']") is not None:
        return None
    # Where libvirt puts it; up to 9.1 that is in the XML of the running domain only.
    return f"/var/lib/libvirt/qemu/nvram/{root.findtext('name')}_VARS.fd"


def after(root):
    """Return what happens when the guest powers off, reboots or crashes."""
    return {
        key: root.findtext(key, "")
        for key in ("on_crash", "on_reboot", "on_poweroff")
    }


def metadata(text):
    """
    Return the element with this project's notes, an empty one if the VM has none.

    Its names are without their namespace, which libvirt's virDomainSetMetadata adds itself.
    """
    element = parse(text).find(f"metadata/{{{METADATA_NS}}}vm")
    if element is None:
        return tag("vm")
    for one in element.iter():
        one.tag = one.tag.rpartition("}")[2]
    return element


def ours(root):
    """Return what this project noted in the VM's metadata: groups, promised disk, seed, ..."""
    element = root.find(f"metadata/{{{METADATA_NS}}}vm")
    if element is None:
        return {"affinity": [], "anti_affinity": [], "disk_mib": 0, "seed": None, "stay": False,
                "cpu_qemu": None}  # fmt: skip
    return {
        "affinity": [e.text for e in element.iterfind(f"{{{METADATA_NS}}}affinity")],
        "anti_affinity": [e.text for e in element.iterfind(f"{{{METADATA_NS}}}anti_affinity")],
        "disk_mib": int(element.get("disk_mib", 0)),
        "seed": element.get("seed"),
        "stay": element.get("stay") == "yes",
        "cpu_qemu": element.get("cpu_qemu"),
    }


def capabilities(text):
    """
    Return ``{arch, model, vendor, features, guests}`` of a host.

    ``guests`` are ``{os_type, arch, domain_types, machines}``; ``features`` are those that libvirt
    lists beside the model's own.
    """
    root = parse(text)
    cpu = root.find("host/cpu")
    guests = [
        {
            "os_type": guest.findtext("os_type", "hvm"),
            "arch": guest.find("arch").get("name"),
            "domain_types": [d.get("type") for d in guest.iterfind("arch/domain")],
            "machines": sorted({name for machine in guest.iterfind("arch//machine")
                                for name in (machine.text, machine.get("canonical")) if name}),
        }
        for guest in root.iterfind("guest")
    ]  # fmt: skip
    return {
        "arch": cpu.findtext("arch") if cpu is not None else None,
        "model": cpu.findtext("model") if cpu is not None else None,
        "vendor": cpu.findtext("vendor") if cpu is not None else None,
        "features": sorted(f.get("name") for f in root.iterfind("host/cpu/feature")),
        "guests": guests,
    }


def host_model(text):
    """
    Return the ``<cpu>`` that ``host-model`` means, by a domain type's capabilities; None without.

    It has the parts that libvirt takes for the description of a host's CPU.
    """
    root = parse(text)
    mode = root.find("cpu/mode[@name='host-model'][@supported='yes']")
    if mode is None or mode.find("model") is None:
        return None
    cpu_ = tag("cpu", None, tag("arch", text=root.findtext("arch")))
    cpu_.extend(part for part in mode if part.tag in ("model", "vendor", "feature"))
    return to_text(cpu_)


def required_features(text):
    """Return the names of the features that a ``<cpu>`` has, without those it disables, sorted."""
    found = parse(text).iterfind("feature")
    return sorted(one.get("name") for one in found if one.get("policy") in (None, "require"))


_PCI_PARTS = ("domain", "bus", "slot", "function")


def device(text):
    """Return ``{name, caps, vendor_id, product_id, vendor, product, address, "PCI class"}``."""
    root = parse(text)
    capability = root.find("capability")
    out = {"name": root.findtext("name", ""), "caps": capability.get("type")}
    for key in ("vendor", "product"):
        element = capability.find(key)
        if element is not None:
            out[f"{key}_id"], out[key] = element.get("id"), element.text or ""
    if out["caps"] == "pci":
        domain_, bus, slot, function = (int(capability.findtext(p, "0"), 0) for p in _PCI_PARTS)
        out["address"] = f"{domain_:04x}:{bus:02x}:{slot:02x}.{function:x}"
        out["PCI class"] = capability.findtext("class", "")
    elif out["caps"] == "usb_device":
        out["address"] = f"{capability.findtext('bus')}:{capability.findtext('device')}"
    return out


def cpu(root):
    """Return ``(mode, XML)`` of a domain's CPU, or of a host's in its capabilities."""
    found = root.find("cpu") if root.tag == "domain" else root.find("host/cpu")
    if found is None:
        return None, None
    return found.get("mode"), to_text(found)
