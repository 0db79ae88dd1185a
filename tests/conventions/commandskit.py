"""What the pages have their readers type, and what the lab's tests type: both in one form."""

import ast
import functools
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
NOT_RUN = re.compile(r"<!-- not run: (?P<why>.*\S) -->$")
NAMED = re.compile(r"(\w+)=")
FENCE = re.compile(r"^ *```(\w*)$")
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
    program, plain, options = words[0], [], []
    rest = iter(words[1:])
    for word in rest:
        if program not in WHOLE and word in TAKES_A_VALUE:
            next(rest, None)
        elif not word.startswith("-"):
            plain.append(word)
        elif word not in ("-q", "-y") and not word.startswith("--out"):
            options.append(word.partition("=")[0])
    if program in SALT:
        return _of_salt(program, plain[1:] if program == "salt" else plain)
    function = plain if program in WHOLE else plain[:1] if program in VERBS else []
    return Form(program, " ".join(function), frozenset(options))


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
    words, sent = [], False
    for word in [*lexer, ";"]:
        if set(word) <= set(";&|()"):
            if words:
                yield words
            words, sent = [], False
        elif set(word) <= set("<>&"):
            sent = True
        elif not sent and (words or not NAMED.match(word)):
            words.append(word)
        else:
            sent = False


def shown(page, text):
    """Yield the commands of a page: of blocks of shell, and of others those that look like one."""
    before, why, kind = "", "", None
    for number, line in enumerate(text.splitlines(), 1):
        if fence := FENCE.match(line):
            kind = (fence[1] or "any") if kind is None else None
            said = NOT_RUN.search(before)
            why = said["why"] if said and kind else ""
        elif kind in ("sh", "any"):
            typed = line.strip().removeprefix("$ ")
            looks = typed != line.strip() or typed.partition(" ")[0] in PROGRAMS
            if (kind == "sh" or looks) and any(split(typed)):
                yield Shown(page, number, typed, why)
        if line.strip() and kind is None:
            before = line


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
        texts = {n.value for n in self._nodes if isinstance(n, ast.Constant)}
        self._texts = {text for text in texts if isinstance(text, str)}
        named = {found[1] for text in self._texts if (found := NAMED.match(text))}
        self._named = sorted(f"{name}=" for name in named - MODES)
        helpers = (n.args.vararg for n in self._nodes if isinstance(n, ast.FunctionDef))
        self._given = {given.arg for given in helpers if given}
        self._values = {
            target.id: node.value
            for node in self._nodes
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def commands(self):
        """Yield its commands as words; what is not written in a call is a mark."""
        for node in self._nodes:
            if isinstance(node, ast.Call):
                yield from self._called(node)
            elif isinstance(node, ast.List | ast.Tuple):
                words = list(self._words(node.elts))
                yield from [words] if words and words[0] in PROGRAMS else []
            elif isinstance(node, ast.Constant | ast.JoinedStr):
                (text,) = self._words([node])
                # A test's text with a command of Salt in it may be what it expects to read.
                yield from (w for w in _scripted(text) if w[0] not in SALT or self._is_program)

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
            inner = getattr(node, "value", node) if isinstance(node, ast.Starred) else node
            value = self._values.get(inner.id) if isinstance(inner, ast.Name) else inner
            if isinstance(node, ast.Starred) and getattr(inner, "id", "") in self._given:
                yield from self._named  # what the callers of a helper give it
            elif isinstance(value, ast.List | ast.Tuple):
                yield from self._words(value.elts)
            elif isinstance(value, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else MARK for p in value.values]
                yield "".join(parts)
            else:
                yield str(value.value) if isinstance(value, ast.Constant) else MARK

    def _called(self, node):
        name = _name(node)
        words = list(self._words(node.args))
        at = next((n for n, word in enumerate(words[:2]) if word in PROGRAMS), None)
        if at is not None:
            words = words[at:]
        elif name == "service" and len(words) == 3:
            words = ["systemctl", words[2], words[1]]
        elif name in CALLS:
            words = [CALLS[name], *words[BEFORE.get(name, 0) :]]
        else:
            return
        parts = [n for n, word in enumerate(words) if word.startswith("virt.") and MARK in word]
        names = [t for t in self._texts if re.fullmatch(r"\w+", t)] if parts else [""]
        for text in names:
            yield [w.replace(MARK, text) if n in parts else w for n, w in enumerate(words)]


def _name(node):
    """Return the name of the function that a node calls, if it is a call."""
    function = getattr(node, "func", None)
    return getattr(function, "attr", getattr(function, "id", ""))


def _scripted(text):
    """Yield the commands of a text, if it is a shell's script."""
    for line in text.replace("$(", ";").splitlines():
        try:
            yield from split(line)
        except ValueError:  # a quote without its end: not a shell's
            continue


def examples(path):
    """Yield the commands of the docstrings of a Salt module, which ``test_examples.py`` runs."""
    for function in trees.tree(path).body:
        if isinstance(function, ast.FunctionDef) and not function.name.startswith("_"):
            block = ast.get_docstring(function).partition("code-block:: bash")[2]
            for line in block.replace("\\\n", "").splitlines():
                yield from split(line) if "salt" in line else ()


@functools.cache
def ran():
    """Return the forms of all that the lab's tests, the demo and the CLI examples' test run."""
    tests = sorted((ROOT / "tests/cloud").glob("*.py"))
    tests += [ROOT / "tests/demo", *sorted((ROOT / "tests/lab/labkit").glob("*.py"))]
    modules = [p for kind in ("_modules", "_runners") for p in sorted((ROOT / kind).glob("*.py"))]
    found = [words for path in tests for words in Typed(path).commands()]
    found += [words for path in modules for words in examples(path)]
    for page in {page for path in tests for page in Typed(path).pages()}:
        text = (ROOT / "docs" / page).read_text()
        found += [words for one in shown(page, text) if not one.why for words in split(one.text)]
    return frozenset(form(words) for words in found)
