"""The image folders of two hosts must be the same for a move, in any spelling."""

from dataclasses import replace

import pytest
from saltvirt.libvirt.domains import lifecycle
from saltvirt.migration.host import arrivalchecks
from saltvirt.vm.show.host import migrationinfo


@pytest.mark.parametrize(("images", "count"), [("{}/", 0), ("{}", 0), ("{}-other", 1)])
def test_only_a_different_folder_is_refused(end, conn, images, count):
    end.make(conn)
    moving = migrationinfo.gather(conn, end.settings, "web1")["web1"]
    lifecycle.undefine(conn, "web1")
    host = replace(end.settings, images=images.format(end.settings.images))

    reasons = [
        reason
        for reason in arrivalchecks.check(conn, host, moving)
        if "its image folder is" in reason
    ]

    assert len(reasons) == count
