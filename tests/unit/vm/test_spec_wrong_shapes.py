"""Lists, mappings and numbers in the place of another are one line that names the argument."""

from dataclasses import replace

import asloaded
import faces
import pytest
from saltvirt.ca import store
from saltvirt.certificates.master import allowing
from saltvirt.core import arguments
from saltvirt.core.errors import BadArgument
from saltvirt.core.options import config
from saltvirt.core.options.config import HostSettings
from saltvirt.core.salt import answering
from saltvirt.seeding.seedmodel import CloudInit
from saltvirt.storage.images import source
from saltvirt.vm import shownprofiles, spec
from saltvirt.vm.update.host import plan, request
from saltvirt.xml import parse
from saltvirt.xml.domain import domain

OF_CPU = [
    {"numa": [1]},
    {"numa": {0: "x"}},
    {"numa": {"a": {}}},
    {"vcpus": [1]},
    {"vcpus": {0: "x"}},
    {"cache": "emulate"},
    {"tuning": 5},
    {"tuning": {"vcpupin": "1"}},
    {"tuning": {"vcpusched": [5]}},
    {"tuning": {"emulatorsched": "fifo"}},
    {"tuning": {"cachetune": {"0-1": 5}}},
]
OF_OTHERS = [
    {"numatune": {"memory": "strict"}},
    {"numatune": {"memnodes": [1]}},
    {"numatune": {"memnodes": {0: 5}}},
    {"clock": {"timers": {"rtc": 5}}},
]
WRONG = [*({"cpu": {"maximum": 2, **one}} for one in OF_CPU), *OF_OTHERS]
SAID = "something in it is not what it should be: a list, mapping, number or text in the place"
NOW = """<domain type='qemu'><name>web1</name><memory>524288</memory><vcpu>1</vcpu>
<os><type arch='x86_64'>hvm</type></os></domain>"""


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_a_new_vm_is_refused_in_one_line(given):
    (argument,) = given
    cpu, more = given.get("cpu", 1), {key: one for key, one in given.items() if key != "cpu"}
    vm = spec.deployment(HostSettings(), "web1", cpu, 512, more).vm

    with pytest.raises(BadArgument, match=f"^{argument}[a-z:]*: {SAID}"):
        domain.build(replace(vm, domain_type="qemu"))


@pytest.mark.parametrize("given", WRONG, ids=str)
def test_so_is_a_change(given):
    (argument,) = given
    asked = request.Request(name="web1", **given)

    with pytest.raises(BadArgument, match=f"^{argument}: {SAID}"):
        plan.decide(parse(NOW), asked)


@pytest.mark.parametrize("key", ["pool", "model", "image", "format"])
def test_what_a_disk_has_as_text_is_text(key):
    disks = [{"name": "data", key: ["x"]}]

    with pytest.raises(BadArgument, match=f"disk 'data': {key}: .'x'. is not text"):
        spec.deployment(HostSettings(), "web1", 1, 512, {"disks": disks})


OF_PATHS = {
    "virt_define.define_xml_path": ("path", [5]),
    "virt_define.create_xml_path": ("path", [5]),
    "virt_define.create_xml_str": ("xml", [5]),
    "virt_volume.define_vol_xml_path": ("path", [5]),
    "virt_volume.define_vol_xml_str": ("xml", [5]),
    "virt_image.image_pull": ("image", [5]),
    "virt_image.image_build": ("source", [5, "web"]),
    "virt_migrate.migrate": ("name", [5, "hyper2"]),
    "virt_vm.get_disks": ("name", [5]),
    "qemu_img.make_image": ("location", [5, 64, "qcow2"]),
    "qemu_img.convert": ("orig", [5, "/srv/copy", "raw"]),
    "guestfs.mount": ("location", [5]),
    "guestfs.umount": ("name", [5]),
}


@pytest.mark.parametrize("function", OF_PATHS)
def test_a_number_in_the_place_of_a_path_is_one_line(function):
    module, name = function.split(".")
    argument, values = OF_PATHS[function]
    given = asloaded.module(f"_modules/{module}.py")

    with pytest.raises(BadArgument, match=f"^{argument}: 5 is not text"):
        getattr(given, name)(*values)


OF_A_BUILD = {
    "commands": (True, "True is not a list of commands"),
    "folder": (5, "5 is not text"),
}


@pytest.mark.parametrize("argument", OF_A_BUILD)
def test_what_a_golden_image_is_given_is_named_too(argument):
    value, why = OF_A_BUILD[argument]
    given = asloaded.module("_modules/virt_image.py")

    with pytest.raises(BadArgument, match=f"^{argument}: {why}"):
        given.image_build("salt://a.qcow2", "web", **{argument: value})


@pytest.mark.parametrize("value", [None, ["vda"], 5])
def test_disks_that_are_no_mapping_are_one_line(value):
    given = asloaded.module("_modules/virt_migrate.py")

    with pytest.raises(BadArgument, match="^disks: "):
        given.seed_non_shared_migrate(value)


def test_all_vms_are_not_one():
    given = asloaded.module("_modules/virt_vm.py")

    with pytest.raises(BadArgument, match="^name: None is not text"):
        given.get_disks(None)


@pytest.mark.parametrize("target", [7, ["hyper1"], None])
def test_what_is_revoked_is_a_text(opts, target):
    with pytest.raises(BadArgument, match="^target: .* is not text"):
        allowing.revoke(opts, target, store.utc_now())


@pytest.mark.parametrize("name", ["", " ,", [], None])
def test_nobody_is_not_found_without_a_word(opts, name):
    runner = faces.load("runners", "virt_cells", context={})
    runner.__opts__ = opts

    assert runner.find(name) == {"error": "name: is missing; see the command's help", "retcode": 1}


URL = "https://bob:s3cret@example.org/a.qcow2?token=s3cret"


@pytest.mark.parametrize(
    "given",
    [
        {"disks": [{"image": URL, "size": 5}]},
        {"disks": [URL]},
        {"disks": URL},
        {"disks": [{"name": "data", "image": [URL]}]},
        {"disks": [{"name": "data", "image": {"url": URL}}]},
        {"image": [URL]},
        {"image": {"url": URL}},
        {"consoles": {"url": URL}},
    ],
)
def test_what_the_url_of_an_image_has_of_secrets_is_not_shown_in_another_shape(given):
    with pytest.raises(BadArgument, match="//example.org/a.qcow2['\"]") as refused:
        spec.deployment(HostSettings(), "web1", 1, 512, given)

    assert "s3cret" not in str(refused.value)


def test_nor_is_it_of_a_url_that_is_no_image():
    with pytest.raises(BadArgument, match="'ftp://example.org/a.qcow2' is not an im") as refused:
        source.kind(URL.replace("https", "ftp"))

    assert "s3cret" not in str(refused.value)


def test_what_is_given_by_its_place_and_by_its_name_is_not_shown():
    """A private key can be."""
    values = [None] * spec.POSITIONAL.index("priv_key")

    with pytest.raises(BadArgument, match="^priv_key: given twice: ") as refused:
        spec.options_by_name([*values, "s3cret"], {"priv_key": "s3cret"})

    assert "s3cret" not in str(refused.value)


def test_what_may_be_secret_is_not_in_what_python_writes_of_a_call():
    secret = {"password": "s3cret"}
    given = {"user_data": secret, "config": secret, "priv_key": "s3cret", "pub_key": "p"}

    call = spec.deployment(HostSettings(), "web1", 1, 512, given)
    order = answering.Order(fun="virt.init", arg=["s3cret"], kwarg=given)
    told = CloudInit(user_data=(secret,), vendor_data=secret)

    assert "s3cret" not in repr([call, order, told])


def test_nor_is_it_in_what_profiles_are_shown_with_and_in_what_python_writes_of_options():
    of_disk = {"name": "system", "image": URL, "image_hash": f"{URL}.sha256", "size": 10}
    given = {"disk": {"web": [of_disk]}, "seed": {"user_data": {"password": "s3cret"}}}
    settings = config.host_settings({"virt": {**given, "vnc": {"password": "s3cret"}}})

    shown = shownprofiles.describe(settings.nic, settings.disk)

    (row,) = shown["disk"]["web"]
    assert row["image"] == row["image_hash"] == "https://example.org/a.qcow2"
    assert "s3cret" not in repr([shown, settings])


@pytest.mark.parametrize(
    "url", ["https://me:s3'cret@h/x", "https://h/x?a=b c&sig=s3cret", "https://h/x?a=b'&k=s3cret"]
)
@pytest.mark.parametrize("shape", [lambda url: [url], lambda url: {"a": (url,)}, lambda url: url])
def test_nor_is_it_where_the_secret_has_quotes_or_blanks_in_it(url, shape):
    said = arguments.repr_without_secrets(shape(url))

    assert "https://h/x" in said and "cret" not in said


@pytest.mark.parametrize("key", ["source_file", "image_hash"])
@pytest.mark.parametrize("shape", [lambda url: [url], lambda url: {"a": url}])
def test_nor_is_it_where_a_profile_has_it_in_another_shape(key, shape):
    shown = shownprofiles.describe({}, {"web": [{"name": "data", "size": 1, key: shape(URL)}]})

    assert "s3cret" not in repr(shown["disk"]["web"])


def test_what_python_writes_of_a_call_has_no_secret_of_its_vm():
    url = "https://me:s3cret@h/x"
    disk = {"name": "data", "image": url, "image_hash": url}
    given = {"graphics": {"type": "vnc", "password": "s3cret"}, "boot": {"kernel": url}}

    call = spec.deployment(HostSettings(), "web1", 1, 512, {**given, "disks": [disk]})

    assert "s3cret" not in repr(call)
