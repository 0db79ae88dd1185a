"""The image folders of two hosts between which a VM moves: the same, however they are written."""

from dataclasses import replace

import pytest
from saltvirt.libvirt.domains import lifecycle
from saltvirt.migration.host import arrivalchecks
from saltvirt.vm.show.host import migrationinfo


@pytest.mark.parametrize(("there", "refused"), [("{}/", 0), ("{}", 0), ("{}-other", 1)])
def test_only_another_folder_is_another(end, conn, there, refused):
    end.make(conn)
    moving = migrationinfo.gather(conn, end.settings, "web1")["web1"]
    lifecycle.undefine(conn, "web1")
    host = replace(end.settings, images=there.format(end.settings.images))

    why = [one for one in arrivalchecks.check(conn, host, moving) if "its image folder is" in one]

    assert len(why) == refused
