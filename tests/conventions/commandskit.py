"""What the pages have their readers type, and what the lab's tests type: both in one form."""

import ast
import functools
import itertools
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import trees

ROOT = Path(__file__).resolve().parents[2]
SALT = ("salt", "salt-run", "salt-call")
# Programs whose first word says what they are to do; of the others their options have to.
VERBS = "virsh systemctl make qemu-img nft git ufw semanage".split()
# Of these all words count: it is one package, unit or key that is meant, and no other.
WHOLE = "apt-get dnf zypper salt-pip systemctl salt-cloud".split()
PROGRAMS = {*SALT, *VERBS, *WHOLE, "salt-key", "sysctl", "iptables"}
# What a test's call stands for where no program is written in it, and the words before its own.
CALLS = {"run": "salt-run", "begin": "salt-run", "cut_off": "salt-run", "salt": "salt"}
CALLS |= {"call": "salt-call", "local": "salt-call"}
BEFORE = {"call": 1, "local": 1, "cut_off": 1}
TAKES_A_VALUE = {"-c", "-t", "--connect", "--timeout"}
# A command with one of these does something else than the command without it.
MODES = {"dry_run", "test", "remove"}
NAMED = re.compile(r"(\w+)=")
BLOCK = re.compile(
    r"(?:<!-- not run: (?P<why>[^\n]*\S) -->\s*)?" r"^ *```(?P<kind>\w*)\n(?P<body>.*?)^ *```$",
    re.MULTILINE | re.DOTALL,
)
MARK = "…"


@dataclass(frozen=True)
class Form:
    """A command without what differs from cloud to cloud: hosts, names, paths and values."""

    program: str
    function: str
    named: frozenset[str]

    def is_part_of(self, other):
        """Return whether another command is this one, with further arguments at most."""
        same = (self.program, self.function) == (other.program, other.function)
        return same and self.named <= other.named and not (other.named - self.named) & MODES


@dataclass(frozen=True)
class Shown:
    """A command of a page, where it is, and why no test runs it if its block says that."""

    page: str
    line: int
    text: str
    why: str = ""

    def __str__(self):
        return f"{self.page}:{self.line}: {self.text}"


def form(words):
    """Return the form of a command, which is given as words."""
    program, *rest = words
    plain, options = _parted(rest, () if program in WHOLE else TAKES_A_VALUE)
    if program in SALT:
        return _of_salt(program, plain[1:] if program == "salt" else plain)
    function = plain if program in WHOLE else plain[:1] if program in VERBS else []
    return Form(program, " ".join(function), options)


def _parted(words, with_value):
    """Return the words that are not options, and the names of the options."""
    plain, options, rest = [], set(), iter(words)
    for word in rest:
        if word in with_value:
            next(rest, None)
        elif word.startswith("-"):
            options.add(word.partition("=")[0])
        else:
            plain.append(word)
    return plain, frozenset(options - {"-q", "-y", "--out"})


def _of_salt(program, plain):
    """Return the form of a command of Salt: what a state's function applies is a part of it."""
    count = 2 if plain and plain[0].startswith("state.") else 1
    named = {found[1] for word in plain[count:] if (found := NAMED.match(word))}
    kind = "salt-run" if program == "salt-run" else "salt"
    return Form(kind, " ".join(plain[:count]), frozenset(named - {"name"}))


def split(line):
    """Yield the commands of a line of a shell as words, without what they are assigned or sent."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";&|<>()")
    lexer.whitespace_split, lexer.commenters = True, "#"
    for is_end, words in itertools.groupby(_not_sent(lexer), lambda w: set(w) <= set(";&|()")):
        command = list(itertools.dropwhile(NAMED.match, words))
        if command and not is_end:
            yield command


def _not_sent(words):
    words = iter(words)
    for word in words:
        if word.strip("<>&") or not set(word) & set("<>"):
            yield word
        else:
            next(words, None)  # a file


def shown(page, text):
    """Yield the commands of a page: of blocks of shell, and of others those that look like one."""
    for block in BLOCK.finditer(text):
        first = text.count("\n", 0, block.start("body")) + 1
        for number, line in enumerate(block["body"].splitlines(), first):
            typed = line.strip().removeprefix("$ ")
            looks = typed != line.strip() or typed.partition(" ")[0] in PROGRAMS
            if block["kind"] == "sh" or (looks and not block["kind"]):
                yield Shown(page, number, typed, block["why"] or "")


def inline(text):
    """Yield the commands of a page's sentences and tables."""
    for code in re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        if code.split()[:1] and code.split()[0] in PROGRAMS:
            yield from split(" ".join(code.split()))


def lacking(one, known):
    """Return those of a line's commands that no test runs."""
    return [w for w in split(one.text) if not any(form(w).is_part_of(k) for k in known)]


def problems(page, text, known):
    """Yield what is wrong with a page: a command neither run nor marked, a mark on what is run."""
    marked = {}
    for one in shown(page, text):
        if one.why:
            marked.setdefault(one.why, []).append(one)
        elif lacking(one, known):
            yield f"{one}: no test runs it, and no <!-- not run: why --> is before its block"
    for why, lines in marked.items():
        if not any(lacking(one, known) for one in lines):
            yield f"{lines[0]}: tests run it, and its block is marked: not run: {why}"


class Typed:
    """What a file of the lab's tests types."""

    def __init__(self, path):
        self._nodes = trees.nodes(path)
        self._is_program = not path.suffix
        texts = (node.value for node in self._all(ast.Constant))
        self._texts = {text for text in texts if isinstance(text, str)}
        named = {found[1] for text in self._texts if (found := NAMED.match(text))}
        self._named = sorted(f"{name}=" for name in named - MODES)
        self._given = {getattr(n.args.vararg, "arg", None) for n in self._all(ast.FunctionDef)}
        assigned = self._all(ast.Assign)
        self._values = {getattr(node.targets[0], "id", None): node.value for node in assigned}

    def _all(self, kind):
        return [node for node in self._nodes if isinstance(node, kind)]

    def commands(self):
        """Yield its commands as words; what is not written in a call is a mark."""
        for node in self._nodes:
            if isinstance(node, ast.Call):
                yield from self._called(node)
            elif isinstance(node, ast.List | ast.Tuple):
                words = list(self._words(node.elts))
                yield from [words] if words and words[0] in PROGRAMS else []
            elif isinstance(node, ast.Constant | ast.JoinedStr):
                yield from self._scripted(*self._words([node]))

    def pages(self):
        """Yield the pages of which it runs every command, in their order."""
        for node in self._nodes:
            is_all = isinstance(node, ast.For) or not getattr(node, "ifs", [1])
            if is_all and _name(getattr(node, "iter", None)) == "how_to":
                yield node.iter.args[0].value
            elif _name(node) == "scripts" and isinstance(node.args[0], ast.Constant):
                yield node.args[0].value

    def _words(self, nodes):
        for node in nodes:
            inner = node.value if isinstance(node, ast.Starred) else node
            name = getattr(inner, "id", "")
            value = self._values.get(name, inner)
            if inner is not node and name in self._given:
                yield from self._named  # what the callers of a helper give it
            elif isinstance(value, ast.List | ast.Tuple):
                yield from self._words(value.elts)
            else:
                yield _text(value)

    def _called(self, node):
        name, words = _name(node), list(self._words(node.args))
        at = next((n for n, word in enumerate(words[:2]) if word in PROGRAMS), None)
        if at is not None:
            yield from self._spelled(words[at:])
        elif name == "service" and len(words) == 3:
            yield ["systemctl", words[2], words[1]]
        elif name in CALLS:
            yield from self._spelled([CALLS[name], *words[BEFORE.get(name, 0) :]])

    def _spelled(self, words):
        """Yield a command for each name of the file that may stand in that of its function."""
        parts = [n for n, word in enumerate(words) if word.startswith("virt.") and MARK in word]
        names = [t for t in self._texts if re.fullmatch(r"\w+", t)] if parts else [""]
        for text in names:
            yield [w.replace(MARK, text) if n in parts else w for n, w in enumerate(words)]

    def _scripted(self, text):
        """Yield the commands of a text, if it is a shell's script."""
        for line in text.replace("$(", ";").splitlines():
            try:
                words = list(split(line))
            except ValueError:  # a quote without its end: not a shell's
                continue
            # A test's text with a command of Salt in it may be what it expects to read.
            yield from (one for one in words if self._is_program or one[0] not in SALT)


def _text(node):
    """Return the text that a node stands for; what is not written there is a mark."""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    return str(node.value) if isinstance(node, ast.Constant) else MARK


def _name(node):
    """Return the name of the function that a node calls, if it is a call."""
    function = getattr(node, "func", None)
    return getattr(function, "attr", getattr(function, "id", ""))


def examples(path):
    """Yield the commands of the docstrings of a Salt module, which ``test_examples.py`` runs."""
    for function in trees.tree(path).body:
        if isinstance(function, ast.FunctionDef) and not function.name.startswith("_"):
            block = ast.get_docstring(function).partition("code-block:: bash")[2]
            for line in block.replace("\\\n", "").splitlines():
                yield from split(line) if "salt" in line else ()


def _typed_by_tests():
    paths = [ROOT / "tests/demo", *(ROOT / "tests/lab/labkit").glob("*.py")]
    for path in [*paths, *(ROOT / "tests/cloud").glob("*.py")]:
        yield from Typed(path).commands()
        for page in set(Typed(path).pages()):
            for one in shown(page, (ROOT / "docs" / page).read_text()):
                yield from () if one.why else split(one.text)


@functools.cache
def ran():
    """Return the forms of all that the lab's tests, the demo and the CLI examples' test run."""
    modules = [p for kind in ("_modules", "_runners") for p in (ROOT / kind).glob("*.py")]
    shown_by_modules = [words for path in modules for words in examples(path)]
    return frozenset(form(words) for words in [*_typed_by_tests(), *shown_by_modules])
