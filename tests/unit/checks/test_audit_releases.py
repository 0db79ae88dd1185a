"""Releases of libvirt and QEMU with known holes are named, by number or package."""

import subprocess

import pytest
from saltvirt.checks.audit.auditanswer import ReleaseFacts
from saltvirt.checks.audit.master import releases

VERSIONS = (
    "9.0.0",
    "9.0.0-4",
    "9.0.0-4+deb12u1",
    "9.0.0-4+deb12u2",
    "11.3.0-3+deb13u3",
    "11.3.0-3+deb13u10",
    "11.10.0",
    "1:7.2+dfsg-7+deb12u9",
    "1:7.2+dfsg-7+deb12u18+b3",
    "1:10.0.2+ds-2",
    "1.0~rc1",
    "1.0",
    "1.0a",
    "1.0.1",
)


def facts(libvirt="12.7.0", distribution="fedora 44", **packages):
    return ReleaseFacts(distribution=distribution, libvirt=libvirt, packages=packages)


def debian(release, libvirt, package):
    return facts(libvirt, f"debian {release}", **{"libvirt-daemon": package})


def holes(said):
    """Return the CVEs that are named of a host."""
    found = [one.what for one in releases.findings("hyper1", said)]
    return {hole.cve for hole in releases.HOLES if found and hole.cve in found[0]}


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_are_ordered_as_dpkg_does(version):
    for other in VERSIONS:
        answer = subprocess.run(["dpkg", "--compare-versions", version, "lt", other], check=False)
        assert releases.is_older(version, other) is (answer.returncode == 0), other


def test_a_release_that_has_mended_all_of_them_is_not_named():
    assert holes(facts("12.7.0")) == set()
    assert holes(facts("12.8.1")) == set()


def test_without_a_package_the_number_counts():
    assert holes(facts("11.10.0")) == {one.cve for one in releases.HOLES if one.ends == "12.7.0"}
    assert holes(facts("9.0.0")) == {one.cve for one in releases.HOLES}


def test_debians_packages_have_mended_holes_of_their_number():
    old = holes(debian("12", "9.0.0", "9.0.0-4+deb12u2"))
    assert "CVE-2025-13193" in old and "CVE-2024-2494" not in old
    assert "CVE-2024-2494" in holes(debian("12", "9.0.0", "9.0.0-4"))

    assert holes(debian("13", "11.3.0", "11.3.0-3+deb13u3")) == {"CVE-2026-77158", "CVE-2026-77159"}
    assert "CVE-2026-63623" in holes(debian("13", "11.3.0", "11.3.0-3+deb13u2"))


def test_a_package_newer_than_the_table_is_not_judged():
    assert holes(debian("12", "9.0.0", "9.0.0-4+deb12u3")) == set()


def test_the_finding_names_the_package_and_the_command():
    (found,) = releases.findings("hyper1", debian("12", "9.0.0", "9.0.0-4+deb12u2"))

    assert found.check == "libvirt-release"
    assert found.what.startswith(
        "libvirt 9.0.0 (9.0.0-4+deb12u2) has known holes: CVE-2025-12748 ("
    )
    assert found.fix.startswith("salt hyper1 pkg.install libvirt-daemon refresh=True")
    (other,) = releases.findings("hyper1", facts("11.6.0", "rocky 10"))
    assert "its changelog names them" in other.fix


def test_an_old_package_of_qemu_is_named():
    said = facts("12.7.0", "debian 13", **{"qemu-system-x86": "1:10.0.8+ds-0+deb13u1"})
    (found,) = releases.findings("hyper1", said)
    assert found.check == "qemu-release"

    for new in ("1:10.0.13+ds-0+deb13u1", "1:10.0.14+ds-0+deb13u1"):
        said = facts("12.7.0", "debian 13", **{"qemu-system-x86": new})
        assert not [*releases.findings("hyper1", said)]


def test_versions_without_end_are_cut():
    endless = "9" * 100_000
    said = debian("12", endless, f"9.0.0-{endless}")

    assert not releases.is_older(endless, "12.7.0")
    assert all(len(one.what) < 2000 for one in releases.findings("hyper1", said))
    (found,) = releases.filters(facts("9.0.0"), [f"web{n}" for n in range(12)])
    assert "web9 and 2 more do not hold" in found.what


def test_filters_are_not_relied_on_where_libvirt_makes_them_anew():
    (found,) = releases.filters(facts("11.3.0"), ["web1", "web2"])
    assert found.check == "filter-window" and "those of web1, web2 do not hold" in found.what

    assert not [*releases.filters(facts("11.6.0"), ["web1"])]
    assert not [*releases.filters(facts("9.0.0"), [])]
