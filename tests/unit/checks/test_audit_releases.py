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


def holes(host_facts):
    """Return the CVEs in the findings of a host."""
    findings = [finding.what for finding in releases.findings("hyper1", host_facts)]
    return {hole.cve for hole in releases.HOLES if findings and hole.cve in findings[0]}


@pytest.mark.parametrize("version", VERSIONS)
def test_versions_are_ordered_as_dpkg_does(version):
    for other_version in VERSIONS:
        answer = subprocess.run(
            ["dpkg", "--compare-versions", version, "lt", other_version], check=False
        )
        assert releases.is_older(version, other_version) is (answer.returncode == 0), other_version


def test_a_release_without_known_holes_is_not_named():
    assert holes(facts("12.7.0")) == set()
    assert holes(facts("12.8.1")) == set()


def test_without_a_package_the_number_counts():
    assert holes(facts("11.10.0")) == {hole.cve for hole in releases.HOLES if hole.ends == "12.7.0"}
    assert holes(facts("9.0.0")) == {hole.cve for hole in releases.HOLES}


def test_fixes_in_debians_packages_count():
    old = holes(debian("12", "9.0.0", "9.0.0-4+deb12u2"))
    assert "CVE-2025-13193" in old and "CVE-2024-2494" not in old
    assert "CVE-2024-2494" in holes(debian("12", "9.0.0", "9.0.0-4"))

    assert holes(debian("13", "11.3.0", "11.3.0-3+deb13u3")) == {"CVE-2026-77158", "CVE-2026-77159"}
    assert "CVE-2026-63623" in holes(debian("13", "11.3.0", "11.3.0-3+deb13u2"))


def test_a_package_newer_than_the_table_is_not_judged():
    assert holes(debian("12", "9.0.0", "9.0.0-4+deb12u3")) == set()


def test_the_finding_names_the_package_and_the_command():
    (finding,) = releases.findings("hyper1", debian("12", "9.0.0", "9.0.0-4+deb12u2"))

    assert finding.check == "libvirt-release"
    assert finding.what.startswith(
        "libvirt 9.0.0 (9.0.0-4+deb12u2) has known holes: CVE-2025-12748 ("
    )
    assert finding.fix.startswith("salt hyper1 pkg.install libvirt-daemon refresh=True")
    (other_finding,) = releases.findings("hyper1", facts("11.6.0", "rocky 10"))
    assert "its changelog names them" in other_finding.fix


def test_an_old_package_of_qemu_is_named():
    host_facts = facts("12.7.0", "debian 13", **{"qemu-system-x86": "1:10.0.8+ds-0+deb13u1"})
    (finding,) = releases.findings("hyper1", host_facts)
    assert finding.check == "qemu-release"

    for new in ("1:10.0.13+ds-0+deb13u1", "1:10.0.14+ds-0+deb13u1"):
        host_facts = facts("12.7.0", "debian 13", **{"qemu-system-x86": new})
        assert not [*releases.findings("hyper1", host_facts)]


def test_very_long_versions_are_cut():
    endless = "9" * 100_000
    host_facts = debian("12", endless, f"9.0.0-{endless}")

    assert not releases.is_older(endless, "12.7.0")
    assert all(len(finding.what) < 2000 for finding in releases.findings("hyper1", host_facts))
    (filter_finding,) = releases.filters(facts("9.0.0"), [f"web{n}" for n in range(12)])
    assert "web9 and 2 more do not hold" in filter_finding.what


def test_filters_are_named_where_libvirt_has_a_window_without_them():
    (finding,) = releases.filters(facts("11.3.0"), ["web1", "web2"])
    assert finding.check == "filter-window" and "those of web1, web2 do not hold" in finding.what

    assert not [*releases.filters(facts("11.6.0"), ["web1"])]
    assert not [*releases.filters(facts("9.0.0"), [])]
