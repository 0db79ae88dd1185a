"""Foreign namespaces keep their prefixes, even if other documents are handled meanwhile."""

import pytest
from saltvirt.core.options.config import HostSettings
from saltvirt.libvirt import connect
from saltvirt.vm.update.host import plan, request
from saltvirt.xml import parse, to_text
from test_hotplug import DEFAULTS

OSINFO = "http://libosinfo.org/xmlns/libvirt/domain/1.0"
VM = f"""<domain type='test' xmlns:qemu='http://libvirt.org/schemas/domain/qemu/1.0'>
<name>{{}}</name><memory>65536</memory><vcpu>1</vcpu><metadata>
<saltvirt:vm xmlns:saltvirt='urn:saltvirt:1' disk_mib='100'/>
<libosinfo:libosinfo xmlns:libosinfo="{OSINFO}"><libosinfo:os id='x'/></libosinfo:libosinfo>
<my-app:a xmlns:my-app='urn:mine?a=1&amp;b=2' my-app:owner='ann'><my-app:b/></my-app:a></metadata>
<os><type>hvm</type></os><qemu:commandline><qemu:arg value='-s'/></qemu:commandline></domain>"""


def test_an_update_keeps_the_prefixes():
    call = request.from_call(HostSettings(), "web1", {**DEFAULTS, "mem": 128})
    text = to_text(plan.decide(parse(VM.format("web1")), call).root)

    assert "ns0" not in text
    for part in ("<libosinfo:os ", "my-app:owner=", "<qemu:arg ", "<saltvirt:vm "):
        assert part in text
    assert 'xmlns:my-app="urn:mine?a=1&amp;b=2"' in text
    # What is written reads the same.
    assert to_text(parse(text)) == text


@pytest.mark.libvirt
def test_libvirt_keeps_them_too():
    with connect.open_connection(HostSettings(uri="test:///default"), readonly=False) as conn:
        vm = conn.defineXML(to_text(parse(VM.format("prefixed"))))
        text = vm.XMLDesc(0)
        vm.undefine()

    assert "libosinfo:os" in text and "my-app:b" in text and "ns0" not in text


@pytest.mark.parametrize("kind", ["network", "pool"])
def test_the_prefixes_of_networks_and_pools_stay(kind):
    text = to_text(parse(f"<{kind}><metadata><a:b\nxmlns:a='urn:{kind}'/></metadata></{kind}>"))

    assert "<a:b />" in text and f'xmlns:a="urn:{kind}"' in text


def test_two_documents_may_have_one_prefix_for_two_namespaces():
    first, second = parse("<x xmlns:p='urn:1'><p:a/></x>"), parse("<x xmlns:p='urn:2'><p:a/></x>")

    for root, uri in ((first, "urn:1"), (second, "urn:2"), (first, "urn:1")):
        assert to_text(root).startswith(f'<x xmlns:p="{uri}">')


def test_one_document_may_have_one_prefix_for_two_namespaces():
    text = "<x><p:a xmlns:p='urn:1'/><p:a xmlns:p='urn:2'/></x>"
    root = parse(to_text(parse(text)))

    assert [element.tag for element in root] == ["{urn:1}a", "{urn:2}a"]


def test_this_projects_own_prefix_stays_reserved():
    text = "<x xmlns:evil='urn:saltvirt:1' xmlns:saltvirt='urn:y'><evil:a/><saltvirt:b/></x>"

    assert "<saltvirt:a" in to_text(parse(text))


@pytest.mark.parametrize(
    "text",
    [
        "<x xmlns:ns7='urn:7'><ns7:a/></x>",
        "<x xmlns='urn:8'><a/></x>",
        "<x><a xmlns='urn:9' b='1'/></x>",
        "<x note=\" xmlns:q='urn:10'\"><a/></x>",
    ],
)
def test_any_written_text_reads_the_same(text):
    root = parse(text)

    written = parse(to_text(root))
    assert [element.tag for element in written.iter()] == [element.tag for element in root.iter()]
