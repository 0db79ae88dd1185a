"""Whether the next start asks for anything else is told by the texts as it is by what they say."""

import xml.etree.ElementTree as ET

import pytest
from elements import MEMORIES, VCPUS
from hypothesis import given, settings
from hypothesis import strategies as st
from saltvirt.xml import parse, tag, to_text
from saltvirt.xml.domain import memory, vcpu
from saltvirt.xml.edit import readdomain, restartdiff
from sizes import sizes

# As libvirt 9.0 writes one that runs, and its next start.
NOW = """<domain type='qemu' id='3'>
  <name>web1</name>
  <memory unit='KiB'>262144</memory>
  <currentMemory unit='KiB'>262144</currentMemory>
  <vcpu placement='static'>2</vcpu>
  <resource>
    <partition>/machine</partition>
  </resource>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/>
      <source file='/srv/salt-images/web1_system.qcow2' index='1'/>
      <backingStore type='file' index='2'>
        <format type='qcow2'/>
        <source file='/srv/salt-images/base/x.qcow2'/>
      </backingStore>
      <target dev='vda' bus='virtio'/>
      <alias name='virtio-disk0'/>
    </disk>
    <interface type='bridge'>
      <source bridge='br0'/>
      <target dev='vnet0'/>
    </interface>
  </devices>
</domain>
"""
THEN = """<domain type='qemu'>
  <name>web1</name>
  <memory unit='KiB'>262144</memory>
  <currentMemory unit='KiB'>262144</currentMemory>
  <vcpu placement='static'>2</vcpu>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/>
      <source file='/srv/salt-images/web1_system.qcow2'/>
      <target dev='vda' bus='virtio'/>
    </disk>
    <interface type='bridge'>
      <source bridge='br0'/>
    </interface>
  </devices>
</domain>
"""
PAGES = """  <memoryBacking>
    <hugepages/>
  </memoryBacking>
  <vcpu"""
DISK = """    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2'/>
      <source file='/srv/salt-images/web1_data.qcow2'/>
    </disk>
  </devices>"""


def test_what_libvirt_adds_to_one_that_runs_is_nothing_else():
    assert restartdiff.has_same_demand(NOW, THEN)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("262144</memory>", "524288</memory>"),
        (">2</vcpu>", ">4</vcpu>"),
        ("  <vcpu", PAGES),
        ("  </devices>", DISK),
        ("web1_system.qcow2", "web1_syst"),
        ("type='qcow2'", "type='raw'"),
    ],
)
def test_more_of_anything_is_seen(old, new):
    then = THEN.replace(old, new)

    assert then != THEN
    assert not restartdiff.has_same_demand(NOW, then)


def _of_pages(*rows):
    listed = "".join(f"      <page size='{size}' unit='KiB'{more}/>\n" for size, more in rows)
    filled = PAGES.replace("<hugepages/>", f"<hugepages>\n{listed}    </hugepages>")
    return NOW.replace("  <vcpu", filled)


TWO = [(2048, " nodeset='0'"), (1048576, " nodeset='1'")]


@pytest.mark.parametrize(("now", "then"), [(TWO, TWO[:1]), (TWO[:1], [(2048, "")])])
def test_pages_of_one_size_are_more_than_pages_of_two_or_of_a_node(now, then):
    assert not restartdiff.has_same_demand(_of_pages(*now), _of_pages(*then))
    assert restartdiff.has_same_demand(_of_pages(*now), _of_pages(*now))


def test_what_was_below_a_disk_and_is_one_itself_is_seen():
    base = "/srv/salt-images/base/x.qcow2"

    assert not restartdiff.has_same_demand(
        NOW, THEN.replace("/srv/salt-images/web1_system.qcow2", base)
    )


def test_texts_of_one_line_are_parsed():
    first, second = (text.replace("\n", "") for text in (NOW, THEN))

    assert not restartdiff.has_same_demand(first, second)


def _text(elements):
    root = parse(to_text(tag("domain", None, *elements)))
    ET.indent(root)
    return to_text(root)


@sizes(quick=60, full=1000)
def test_no_other_size_is_passed_over(size):
    one = st.builds(
        lambda mem, cpus: _text([*memory.build(mem), *vcpu.build(cpus)]), MEMORIES, VCPUS
    )

    @settings(max_examples=size)
    @given(now=one, then=one)
    def compared(now, then):
        if restartdiff.has_same_demand(now, then):
            first, second = map(parse, (now, then))
            assert readdomain.sizes(second) == readdomain.sizes(first)
            assert readdomain.memory_from(second)[0] in (None, readdomain.memory_from(first)[0])

    compared()
