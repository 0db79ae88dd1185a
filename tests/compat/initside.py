"""
Salt 3006's own ``virt.init`` is asked for VMs of KVM, and what it gives libvirt is printed.

It runs in the Python of Salt 3006, and takes a job as JSON from standard input: ``folder`` is its
own, ``who`` the first arguments and ``calls`` the keywords of each call, which may have others of
those. It prints a list of domain
XML: the test driver, which is all that answers here, has no guests of KVM, and is not given them.
"""

import json
import sys

import libvirt
from oneside import Salt, as_yaml_has_them, share_one_connection


def main():
    """Do the job of standard input."""
    job = json.load(sys.stdin, object_hook=as_yaml_has_them)
    out, sys.stdout = sys.stdout, sys.stderr
    asked, defined = Salt(job["folder"], None), []
    share_one_connection(f"test://{job['folder']}/host.xml")
    libvirt.virConnect.defineXML = lambda _conn, xml: defined.append(xml)
    for given in job["calls"]:
        how = {"hypervisor": "kvm", "arch": "x86_64", "start": False, "seed": False, **given}
        who = [
            how.pop(key, usual)
            for key, usual in zip(("name", "cpu", "mem"), job["who"], strict=True)
        ]
        asked.call({"function": "modules/virt.init", "args": who, "kwargs": how, "test": False})
    json.dump(defined, out)


if __name__ == "__main__":
    main()
