"""Whether the next start needs anything else: the texts give the same answer as their content."""

import xml.etree.ElementTree as ET

import pytest
from elements import MEMORIES, VCPUS
from hypothesis import given, settings
from hypothesis import strategies as st
from saltvirt.xml import parse, tag, to_text
from saltvirt.xml.domain import memory, vcpu
from saltvirt.xml.edit import readdomain, restartdiff
from sizes import sizes

# A running domain and its next start, as libvirt 9.0 writes them.
RUNNING = """<domain type='qemu' id='3'>
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
NEXT_START = """<domain type='qemu'>
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


def test_elements_that_libvirt_adds_to_a_running_domain_are_no_difference():
    assert restartdiff.has_same_demand(RUNNING, NEXT_START)


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
def test_any_greater_demand_is_a_difference(old, new):
    changed = NEXT_START.replace(old, new)

    assert changed != NEXT_START
    assert not restartdiff.has_same_demand(RUNNING, changed)


def _of_pages(*rows):
    pages = "".join(
        f"      <page size='{size}' unit='KiB'{attributes}/>\n" for size, attributes in rows
    )
    backing = PAGES.replace("<hugepages/>", f"<hugepages>\n{pages}    </hugepages>")
    return RUNNING.replace("  <vcpu", backing)


TWO_SIZES = [(2048, " nodeset='0'"), (1048576, " nodeset='1'")]


@pytest.mark.parametrize(
    ("running", "next_start"), [(TWO_SIZES, TWO_SIZES[:1]), (TWO_SIZES[:1], [(2048, "")])]
)
def test_pages_of_one_size_are_more_than_pages_of_two_or_of_a_node(running, next_start):
    assert not restartdiff.has_same_demand(_of_pages(*running), _of_pages(*next_start))
    assert restartdiff.has_same_demand(_of_pages(*running), _of_pages(*running))


def test_a_base_that_becomes_a_disk_is_a_difference():
    base = "/srv/salt-images/base/x.qcow2"

    assert not restartdiff.has_same_demand(
        RUNNING, NEXT_START.replace("/srv/salt-images/web1_system.qcow2", base)
    )


def test_texts_of_one_line_are_parsed():
    first, second = (text.replace("\n", "") for text in (RUNNING, NEXT_START))

    assert not restartdiff.has_same_demand(first, second)


def _text(elements):
    root = parse(to_text(tag("domain", None, *elements)))
    ET.indent(root)
    return to_text(root)


@sizes(quick=60, full=1000)
def test_no_other_size_is_missed(size):
    texts = st.builds(
        lambda mem, cpus: _text([*memory.build(mem), *vcpu.build(cpus)]), MEMORIES, VCPUS
    )

    @settings(max_examples=size)
    @given(running=texts, next_start=texts)
    def compared(running, next_start):
        if restartdiff.has_same_demand(running, next_start):
            first, second = map(parse, (running, next_start))
            assert readdomain.sizes(second) == readdomain.sizes(first)
            assert readdomain.memory_from(second)[0] in (None, readdomain.memory_from(first)[0])

    compared()
