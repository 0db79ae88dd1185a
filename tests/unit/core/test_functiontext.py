"""A function's source gives its usage, its first sentence, its arguments, and its undo."""

from saltvirt.core import functiontext

SOURCE = '''
"""A module."""

__virtualname__ = "virt"


def do_(name, size=None, *names, force=False, mode="a b", **kwargs):
    """
    Do it to ``/a.b/c`` at once. Then rest.

    name
        The VM's name.
    size, mode
        The size;
        or its mode.
    kwargs
        Others.

    Returns ``{name: "done"}``. Undo: virt.undo, or
    virt.init again. Fails if not.

    CLI Example:

    .. code-block:: bash

        salt-run virt.do centos1 \\
            size=5
        salt-run virt.undo centos1
    """


def bare():
    """Return True"""


def _hidden():
    pass


done = do_
_secret = do_
other = 5
'''


def test_the_usage_of_a_function_is_read_from_its_source():
    text, bare = functiontext.read(SOURCE, "virt_file")

    assert (text.name, text.aliases) == ("virt.do", ("virt.done",))
    assert text.words == (
        *("NAME", "[size=SIZE]", "[NAMES ...]", "[force=False]", "[mode=a b]"),
        "[ARGUMENT=VALUE ...]",
    )
    assert text.sentence == "Do it to '/a.b/c' at once."
    assert text.about_arguments == {
        "name": "The VM's name.",
        "size, mode": "The size; or its mode.",
        "kwargs": "Others.",
    }
    assert text.remarks[0] == "Then rest."
    assert text.undo == "virt.undo, or virt.init again"
    assert text.commands == ("salt-run virt.do centos1 size=5", "salt-run virt.undo centos1")
    assert (bare.name, bare.sentence, bare.undo) == ("virt.bare", "Return True", None)


def test_a_module_without_a_virtual_name_has_the_name_of_its_file():
    (text,) = functiontext.read('def make(path):\n    """Make it."""\n', "qemu_img")

    assert (text.name, text.words) == ("qemu_img.make", ("PATH",))
