"""Only root can delay the build of the appliance."""

import subprocess

from lockers import another_user_holds, ends
from saltvirt.seeding.offline.worker import confined


def test_no_user_of_the_host_keeps_it_from_building_the_appliance(tmp_path, monkeypatch):
    """Mocked: supermin, which takes seconds."""
    cache, argvs = tmp_path / "cache", []
    (tmp_path / "supermin.d").mkdir()

    def supermin(argv, **_options):
        argvs.append(argv)
        for name in ("kernel", "initrd", "root"):
            (cache / "appliance").mkdir(parents=True, exist_ok=True)
            (cache / "appliance" / name).touch()
        return subprocess.CompletedProcess(argv, 0, "", "")

    def build():
        with confined.built([str(tmp_path)]):
            pass

    monkeypatch.setattr(confined, "CACHE", str(cache))
    monkeypatch.setattr(confined.subprocess, "run", supermin)
    build()

    with another_user_holds(cache):
        assert ends(build)
    # supermin's own lock can be held by any user that can read it, so it is not used.
    assert not any("--lock" in argv for argv in argvs)
