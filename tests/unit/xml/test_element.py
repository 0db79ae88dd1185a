"""How each kind of field of a declared element is read and written."""

import pytest
from saltvirt.core.errors import BadArgument, VirtError
from saltvirt.xml import element, fields, parse, to_text


@element.declare("part")
class Part:
    """An element that counts as missing without its text."""

    name: str = fields.text(is_needed=True)
    unit: str | None = fields.attribute("@unit", default=None)


@element.declare("left", "right")
class Side:
    """An element with several names."""

    name: str
    size_kib: int | None = fields.value(".", fields.kib_attribute("size"), default=None)


@element.declare()
class Place:
    """Fields in the element of another class."""

    row: str | None = fields.text("row", default=None)
    seat: int | None = fields.attribute("row/@seat", fields.INTEGER, default=None)


@element.declare("box")
class Box:
    """An element with a field of each kind."""

    kind: str = fields.attribute("@kind", missing="plain", default="plain")
    is_open: bool | None = fields.attribute("@open", fields.YES_NO, default=None)
    place: Place = fields.child()
    label: dict[str, str] | None = fields.bag("label", default=None)
    color: str | None = fields.attribute("label/paint/@color", default=None)
    is_heavy: bool = fields.presence("heavy", default=False)
    lid: Part | None = fields.child("lid", default=None)
    parts: tuple[Part, ...] | None = fields.children("parts", default=None)
    sides: tuple[Side, ...] = fields.children(default=())
    notes: tuple[str, ...] = fields.values("note", fields.TEXT, default=())
    limits: dict[str, int] = fields.tagged(
        "limits", "low", "high", form=fields.KIB, default_factory=dict
    )
    size_kib: int = fields.value("size", fields.KIB, missing=0, default=0)
    free_kib: int = fields.value("free", fields.KIB, missing_as="size_kib", default=0)


FULL = Box(
    kind="deep",
    is_open=False,
    place=Place(row="b", seat=7),
    label={"lang": "en"},
    color="red",
    is_heavy=True,
    lid=Part(name="lid", unit="piece"),
    parts=(Part(name="a"), Part(name="b")),
    sides=(Side(name="right", size_kib=1), Side(name="left")),
    notes=("one", "two"),
    limits={"high": 9, "low": 1},
    size_kib=8,
    free_kib=4,
)
TEXT = """<box kind="deep" open="no">
  <row seat="7">b</row>
  <label lang="en">
    <paint color="red" />
  </label>
  <heavy />
  <lid>
    <part unit="piece">lid</part>
  </lid>
  <parts>
    <part>a</part>
    <part>b</part>
  </parts>
  <right size="1" unit="KiB" />
  <left />
  <note>one</note>
  <note>two</note>
  <limits>
    <high unit="KiB">9</high>
    <low unit="KiB">1</low>
  </limits>
  <size unit="KiB">8</size>
  <free unit="KiB">4</free>
</box>
"""


def read(text):
    """Return the content of a box."""
    return element.read(Box, parse(text))


def test_fields_are_written_in_their_order_and_read_again():
    assert to_text(element.build(FULL)) == TEXT
    assert read(TEXT) == FULL


def test_a_missing_part_is_read_as_none_or_as_its_default():
    empty_box = read("<box/>")

    assert empty_box == Box(place=Place())
    assert element.read(Box, None) == empty_box
    assert to_text(element.build(empty_box)).startswith('<box kind="plain">')


def test_parts_without_a_field_are_ignored():
    text = TEXT.replace("<heavy />", "<heavy new='yes'><part>x</part></heavy><other/>")

    assert read(text.replace('open="no"', 'open="no" closed="no"')) == FULL


def test_the_first_of_several_elements_is_read():
    assert read("<box><label lang='en'/><label lang='de'/></box>").label == {"lang": "en"}


def test_a_list_may_be_missing_or_empty():
    assert read("<box/>").parts is None
    assert read("<box><parts/></box>").parts == ()
    assert element.build(Box(place=Place(), parts=())).find("parts") is not None
    assert element.build(Box(place=Place(), sides=())).find("limits") is None


def test_an_element_without_a_required_part_counts_as_missing():
    box = read("<box><lid><part unit='piece'/></lid><parts><part/><part>b</part></parts></box>")

    assert (box.lid, box.parts) == (None, (Part(name="b"),))
    with pytest.raises(VirtError, match="<part>"):
        element.read(Part, parse("<part/>"))


def test_a_value_may_stand_for_another_that_is_missing():
    assert read("<box><size unit='MiB'>1</size></box>").free_kib == 1024
    assert read("<box><size>lots</size></box>").size_kib == 0


def test_text_that_xml_cannot_hold_is_refused_by_its_element():
    with pytest.raises(BadArgument, match="^row: "):
        element.build(Box(place=Place(row="a\0b")))
    with pytest.raises(BadArgument, match="^color: "):
        element.build(Box(place=Place(), color="a\0b"))


def test_none_builds_no_element():
    assert element.build(None) is None
    assert [part.tag for part in element.build_parts(Place(row="b", seat=7))] == ["row"]
