"""Salt's minion for guests: fetched once into the file server, checked, and removed again."""

import hashlib
import http.server
import json
import os
from pathlib import Path

import pytest
from fetching import served
from saltvirt.cluster.cloud import Cloud
from saltvirt.core.errors import BadArgument, MasterError
from saltvirt.core.options.config import MasterSettings
from saltvirt.seeding.master import minionfiles, minionsource
from saltvirt.seeding.shared import minionpackages

XZ = b"\xfd7zXZ\0"
VERSION = "3006.1"
ONEDIR = {
    "x86_64": f"salt-{VERSION}-onedir-linux-x86_64.tar.xz",
    "aarch64": f"salt-{VERSION}-onedir-linux-arm64.tar.xz",
}
DEBS = [f"salt-common_{VERSION}_amd64.deb", f"salt-minion_{VERSION}_amd64.deb"]
SITE_FOLDER = f"saltproject-generic/onedir/{VERSION}"


def put(folder, name, data):
    """Put a file with its checksum into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    digest = hashlib.sha256(data).hexdigest()
    (folder / f"{name}.sha256").write_text(f"{digest}  {name}\n")
    return digest


@pytest.fixture
def site(tmp_path):
    """A folder with the layout of Salt's own site."""
    folder = tmp_path / "site"
    for arch, name in ONEDIR.items():
        put(folder / SITE_FOLDER, name, XZ + arch.encode() * 1000)
    return folder


@pytest.fixture
def requested_paths():
    """The paths of the requests to the web server."""
    return []


@pytest.fixture
def address(site, requested_paths):
    """The site's address; paths below ``/elsewhere`` redirect to a file of the master."""

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, directory=str(site), **kwargs)

        def do_GET(self):
            requested_paths.append(self.path)
            if self.path.startswith("/elsewhere") and not self.path.endswith(".sha256"):
                self.send_response(302)
                self.send_header("Location", "file:///etc/passwd")
                self.end_headers()
                return
            self.path = self.path.removeprefix("/elsewhere")
            super().do_GET()

        def log_message(self, *_args):
            pass

    with served(Handler) as url:
        yield url


@pytest.fixture
def root(tmp_path):
    """The file server's folder."""
    folder = tmp_path / "srv"
    folder.mkdir()
    return folder


@pytest.fixture
def stages():
    """The stages that the user has seen."""
    return []


@pytest.fixture
def cloud(opts, root, address, stages):
    """A master with the site in its configuration."""
    opts["file_roots"] = {"base": [str(root)], "__env__": [str(root.parent / "__env__")]}
    settings = MasterSettings(minion_packages={"source": address})
    return Cloud(
        opts=opts, settings=settings, progress=lambda stage, **_options: stages.append(stage)
    )


def fetch(cloud, kind="onedir", arch="x86_64,aarch64", source=None, saltenv="base", folder=None):
    """Fetch minions as the runner does."""
    request = minionfiles.from_call(cloud, kind, VERSION, arch, source)
    return minionfiles.fetch(cloud, request, saltenv, folder)


def index(root):
    """Return the index of a file server's folder."""
    return json.loads((root / "salt-virt/minion/index.json").read_text())


def paths_below(root):
    """Return the paths of all files below a folder."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


def test_both_tarballs_and_their_index_are_on_the_file_server(cloud, root, site, stages):
    result = fetch(cloud)

    folder = root / "salt-virt/minion"
    assert result == {
        "folder": str(folder),
        "kind": "onedir",
        "version": VERSION,
        "fetched": sorted(ONEDIR.values()),
        "kept": [],
    }
    assert sorted(os.listdir(folder)) == sorted([*ONEDIR.values(), "index.json"])
    for entry in index(root)["onedir"]:
        assert entry["file"] == ONEDIR[entry["arch"]] and entry["version"] == VERSION
        data = (folder / entry["file"]).read_bytes()
        assert data == (site / SITE_FOLDER / entry["file"]).read_bytes()
        assert entry["sha256"] == hashlib.sha256(data).hexdigest()
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o644
    assert f"{ONEDIR['aarch64']}: Fetching" in stages


def test_a_file_with_its_checksum_is_not_fetched_again(cloud, root, requested_paths):
    fetch(cloud)
    before = len(requested_paths)

    second_result = fetch(cloud)

    assert (second_result["fetched"], second_result["kept"], len(requested_paths)) == (
        [],
        sorted(ONEDIR.values()),
        before,
    )
    (root / "salt-virt/minion" / ONEDIR["x86_64"]).write_bytes(b"damaged")
    assert fetch(cloud)["fetched"] == [ONEDIR["x86_64"]]


def test_another_release_takes_the_place_of_the_one_before(cloud, root, site, monkeypatch):
    fetch(cloud)
    name = "salt-3006.2-onedir-linux-x86_64.tar.xz"
    put(site / "saltproject-generic/onedir/3006.2", name, XZ)
    monkeypatch.setitem(globals(), "VERSION", "3006.2")

    fetch(cloud, arch="x86_64")

    files = {entry["file"] for entry in index(root)["onedir"]}
    assert files == {name, ONEDIR["aarch64"]}
    assert set(os.listdir(root / "salt-virt/minion")) == {*files, "index.json"}


def write_wrong_sum(folder, name):
    (folder / f"{name}.sha256").write_text("0" * 64)


def write_page_for_sum(folder, name):
    (folder / f"{name}.sha256").write_text("<html>log in</html>")


def write_page_for_file(folder, name):
    put(folder, name, b"<html>log in</html>")


def remove_file(folder, name):
    (folder / name).unlink()


def write_large_file(folder, name):
    put(folder, name, XZ + bytes(2 << 20))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (write_wrong_sum, "is not what its checksum says: its SHA-256 is .*, not 0000000000000000"),
        (write_page_for_sum, "xz.sha256 has no SHA-256 in it; it is a web page"),
        (write_page_for_file, "arm64.tar.xz is no .xz file; it is a web page"),
        (remove_file, "arm64.tar.xz cannot be fetched: HTTP 404"),
        (write_large_file, "arm64.tar.xz has more than 1.0M, and is no minion"),
    ],
)
def test_a_file_that_is_no_minion_is_one_line_of_error_and_leaves_nothing(
    cloud, root, site, monkeypatch, damage, reason
):
    monkeypatch.setattr(minionsource, "MOST_BYTES", 1 << 20)
    damage(site / SITE_FOLDER, ONEDIR["aarch64"])

    with pytest.raises(MasterError, match=reason) as error:
        fetch(cloud)

    assert "\n" not in str(error.value) and "image" not in str(error.value)
    assert paths_below(root) == []


def test_a_failure_leaves_what_was_there_before(cloud, root, site):
    fetch(cloud, arch="x86_64")
    before = paths_below(root)
    write_wrong_sum(site / SITE_FOLDER, ONEDIR["aarch64"])

    with pytest.raises(MasterError, match="is not what its checksum says"):
        fetch(cloud)

    assert paths_below(root) == before
    assert [entry["arch"] for entry in index(root)["onedir"]] == ["x86_64"]


def test_a_server_that_leads_to_a_file_of_the_master_is_refused(cloud, root, address):
    with pytest.raises(MasterError, match="cannot be fetched: the server leads to file, and"):
        fetch(cloud, source=f"{address}/elsewhere")

    assert paths_below(root) == []


def test_a_server_that_is_not_there_is_one_line(cloud, root):
    with pytest.raises(MasterError, match="sha256 cannot be fetched: .*refused"):
        fetch(cloud, source="http://127.0.0.1:9")

    assert paths_below(root) == []


def test_an_interruption_leaves_nothing_and_a_kill_what_the_next_call_removes(cloud, root, opts):
    def interrupt(_stage, **_figures):
        raise KeyboardInterrupt

    interrupted_cloud = Cloud(opts=opts, settings=cloud.settings, progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch(interrupted_cloud)
    assert paths_below(root) == []

    fetch(cloud, arch="x86_64")
    folder = root / "salt-virt/minion"
    for name in (".0123456789ab-7-x.tar.xz.part", ".0123456789ab-7-x.tar.xz.part.version"):
        (folder / name).write_text("left by a process that was killed")
    fetch(cloud)
    assert sorted(os.listdir(folder)) == sorted([*ONEDIR.values(), "index.json"])


@pytest.mark.parametrize("subfolder", ["", SITE_FOLDER])
def test_a_folder_of_the_master_is_a_source_too(cloud, root, tmp_path, requested_paths, subfolder):
    folder = tmp_path / "stick"
    put(folder / subfolder, ONEDIR["x86_64"], XZ + b"of a folder")

    result = fetch(cloud, arch="x86_64", source=str(folder))

    assert result["fetched"] == [ONEDIR["x86_64"]] and requested_paths == []
    with pytest.raises(MasterError, match=r"arm64.tar.xz.sha256 cannot be read: No such file"):
        fetch(cloud, source=str(folder))
    put(folder / subfolder, ONEDIR["aarch64"], XZ)
    write_wrong_sum(folder / subfolder, ONEDIR["aarch64"])
    with pytest.raises(MasterError, match="is not what its checksum says"):
        fetch(cloud, source=str(folder))


def test_a_pipe_in_a_folder_blocks_nothing(cloud, root, tmp_path):
    folder = tmp_path / "stick"
    put(folder, ONEDIR["x86_64"], XZ)
    (folder / ONEDIR["x86_64"]).unlink()
    os.mkfifo(folder / ONEDIR["x86_64"])

    with pytest.raises(MasterError, match="is not a regular file"):
        fetch(cloud, arch="x86_64", source=str(folder))


def test_packages_are_published_with_others_in_their_folder(cloud, root, tmp_path):
    folder = tmp_path / "stick"
    # apt writes the name of a package with an epoch like this.
    epoch = "bsdutils_1%3a2.38_amd64.deb"
    for name in (*DEBS, "dctrl-tools_2.24_amd64.deb", "bsdmainutils_12_all.deb", epoch):
        put(folder, name, b"!<arch>\n" + name.encode())
    for name in ("salt-common_3005.1_amd64.deb", "vim_9_arm64.deb"):
        put(folder, name, b"!<arch>\nnot these")

    fetch(cloud)
    fetch(cloud, kind="deb", arch="x86_64", source=str(folder))

    index_read = minionpackages.read_index((root / "salt-virt/minion/index.json").read_text())
    assert [entry.file for entry in index_read["deb"]] == [
        *DEBS,
        "bsdmainutils_12_all.deb",
        epoch,
        "dctrl-tools_2.24_amd64.deb",
    ]
    assert {entry.family for entry in index_read["deb"]} == {"deb"} and len(
        index_read["onedir"]
    ) == 2


def test_a_name_that_hosts_would_not_take_is_refused_before_it_is_in_the_index(
    cloud, root, tmp_path
):
    fetch(cloud)
    before = (root / "salt-virt/minion/index.json").read_text()
    folder = tmp_path / "stick"
    for name in (*DEBS, "what is this_1_amd64.deb"):
        put(folder, name, b"!<arch>\n")

    with pytest.raises(MasterError, match="'what is this_1_amd64.deb' is not .*rename it, or"):
        fetch(cloud, kind="deb", arch="x86_64", source=str(folder))

    assert (root / "salt-virt/minion/index.json").read_text() == before


def test_an_index_that_cannot_be_read_is_not_written_over(cloud, root):
    fetch(cloud)
    path = root / "salt-virt/minion/index.json"
    path.write_text("{")

    with pytest.raises(MasterError, match=rf"{path} cannot be read: .*; remove the folder"):
        fetch(cloud)
    assert path.read_text() == "{"


def test_packages_of_the_site_are_found_in_salts_folders(cloud, site, root):
    for name in DEBS:
        put(site / "saltproject-deb/pool", name, b"!<arch>\n")
    rpms = [f"salt-{VERSION}-0.aarch64.rpm", f"salt-minion-{VERSION}-0.aarch64.rpm"]
    for name in rpms:
        put(site / "saltproject-rpm", name, b"\xed\xab\xee\xdb")

    assert fetch(cloud, kind="deb", arch="x86_64")["fetched"] == DEBS
    assert fetch(cloud, kind="rpm", arch="aarch64")["fetched"] == rpms
    assert set(index(root)) == {"deb", "rpm"}


def test_all_of_it_is_removed_again(cloud, root):
    fetch(cloud)

    result = minionfiles.remove(cloud, "base", None)

    assert result["removed"] == sorted(ONEDIR.values()) and paths_below(root) == []
    assert minionfiles.remove(cloud, "base", None) == {"folder": None, "removed": []}


def test_an_error_for_a_file_server_without_folders_names_the_option(cloud, opts, tmp_path):
    opts["fileserver_backend"] = ["git"]
    with pytest.raises(MasterError, match="has no folder of this machine .*give folder="):
        fetch(cloud)
    opts["fileserver_backend"] = ["roots"]
    opts["file_roots"] = {}
    with pytest.raises(MasterError, match="for saltenv prod .*give folder="):
        fetch(cloud, saltenv="prod")
    with pytest.raises(BadArgument, match="saltenv: .* is not text"):
        fetch(cloud, saltenv=["prod"])

    checkout = tmp_path / "checkout"
    checkout.mkdir()
    assert Path(fetch(cloud, folder=str(checkout))["folder"]) == checkout / "salt-virt/minion"


def test_the_first_writable_folder_is_used(cloud, opts, root, tmp_path):
    (tmp_path / "file").write_text("no folder can be made here")
    opts["file_roots"] = {"base": [str(tmp_path / "file"), str(root)]}

    assert fetch(cloud)["folder"] == str(root / "salt-virt/minion")
    opts["file_roots"] = {"base": [str(tmp_path / "file")]}
    with pytest.raises(MasterError, match=r"can write to none .*/file: .*; make one: install -d"):
        fetch(cloud)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("exe", None, "x86_64", None), "kind: 'exe'; one of onedir, deb, rpm"),
        (("onedir", "3006", "x86_64", None), "version: '3006' is not a release"),
        (("onedir", "9999.1", "x86_64", None), "9999.1 is newer than this master"),
        (("onedir", "../..", "x86_64", None), "is not a release"),
        (("onedir", 3006.1, "x86_64", None), "3006.1 came as a number; quote it"),
        (("onedir", VERSION, "s390x", None), "arch: 's390x'; x86_64 or aarch64"),
        (("onedir", VERSION, "", None), "arch: say for which processors"),
        (("onedir", VERSION, "x86_64", "file:///x"), "source: 'file:///x'; write https"),
        (("onedir", VERSION, "x86_64", "/no/such"), "there is no folder /no/such on the master"),
    ],
)
def test_a_wrong_argument_is_refused(cloud, arguments, reason):
    with pytest.raises(BadArgument, match=reason):
        minionfiles.from_call(cloud, *arguments)


def test_a_processor_that_is_named_twice_counts_once(cloud):
    assert minionfiles.from_call(cloud, "onedir", VERSION, "x86_64,x86_64", None).arches == (
        "x86_64",
    )


def test_the_release_is_the_masters_own(cloud, monkeypatch):
    monkeypatch.setattr(minionfiles.salt.version, "__version__", "3006.25")
    assert minionfiles.from_call(cloud, "onedir", None, "x86_64", None).version == "3006.25"
    monkeypatch.setattr(minionfiles.salt.version, "__version__", "3006.25+12.g1f")
    with pytest.raises(BadArgument, match="which is no release; say which"):
        minionfiles.from_call(cloud, "onedir", None, "x86_64", None)
