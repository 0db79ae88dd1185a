"""The doctor names a disk on shared storage, and never moves it: its VM can be anywhere."""

import os
import time
from dataclasses import replace
from pathlib import Path

from saltvirt.checks.doctor.host import facts
from saltvirt.checks.doctor.master.doctorcloud import DoctorCloud, MasterRecords
from saltvirt.checks.doctor.master.run import CHECKS
from saltvirt.libvirt.domains import lifecycle


def test_the_disk_of_a_vm_that_moved_to_a_host_of_another_master_is_only_named(hypervisor):
    images = Path(hypervisor.settings.images)
    hypervisor.settings = replace(hypervisor.settings, shared_paths=[str(images)])
    with hypervisor.libvirt() as conn:
        hypervisor.init("web1", start=False)
        # The definition is on the other host now, and the file has this host's owner mark.
        lifecycle.undefine(conn, "web1")
        for path in images.glob("web1*"):
            os.utime(path, (time.time() - 7200,) * 2)
        host_facts = facts.read_host_facts(
            conn, {"extension_modules": "/nowhere"}, hypervisor.settings
        )

    view = DoctorCloud(
        master=MasterRecords(code=host_facts.code, copies=["/a"]), hosts={"hyper1": host_facts}
    )
    findings = [
        finding
        for finding in CHECKS.judge_host("hyper1", view)
        if finding.check in ("disk", "seed")
    ]

    assert findings and [finding.mend for finding in findings] == [""] * len(findings)
    assert any("virt.trash_put" in finding.fix for finding in findings if finding.check == "disk")
