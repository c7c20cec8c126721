"""Check that names, docstrings, comments, messages and documents read as plain English.

Run it as `python -m lint.plain_english [PATH…]` from the project's root. It prints one line for each place, then their
number, and exits with 1 if there is any. Python files are read as syntax trees and tokens; documents as paragraphs and
sentences; other texts (charts, protos, the console, scripts) line by line. There is no list of exceptions: names on the
wire are known from `protos/`, and generated files are not checked because their sources are.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lint.vocabulary import EMPTY_NAMES, EMPTY_WORDS, NOUN_CLAUSES, PHRASE, THIRD_PERSON, remedy

SENTENCE_WORDS = 30  # at most, in a document
MEAN_SENTENCE_WORDS = 18  # at most, over the sentences of one document
PARAGRAPH_WORDS = 80  # at most
TEST_NAME_LENGTH = 80  # characters at most
MESSAGE_WORDS = 3  # a string of fewer words is a key or a value, not a message

# Texts that are checked line by line, and what no person writes or edits.
TEXTS = re.compile(
    r"(\.(ya?ml|tpl|txt|proto|js|html|css|go|sh|toml|service)|/?(Makefile|Dockerfile)|\.ci/run|e2e/(fresh|cluster/[^./]+|cluster/node/[^./]+))$"
)
SKIPPED = re.compile(
    r"^(lint/vocabulary|lint/tests/|requirements|LICENSE|charts/tests/golden/|charts/embereye/files/|bench/results/|.*go\.(sum|mod)$)"
)


@dataclass(frozen=True, slots=True)
class Place:
    """A line that departs from the rules, and what to do about it."""

    path: str
    line: int
    problem: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


def phrases(path: str, line: int, text: str) -> Iterator[Place]:
    """Find the banned phrases in `text`, which starts at `line`."""
    for offset, row in enumerate(text.splitlines()):
        for match in PHRASE.finditer(row):
            excerpt = row.strip()
            yield Place(path, line + offset, f"“{match[0]}” in “{excerpt[:90]}”: {remedy(match[0])}")


def name_problem(name: str, wire_names: frozenset[str]) -> str:
    """The reason why `name` says too little; empty if it is fine or a name on the wire."""
    plain = name.strip("_")
    if plain in wire_names or plain.startswith("test_"):
        return ""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", plain).lower().split("_")
    if plain in EMPTY_NAMES:
        return f"the name {name!r} does not say what it names"
    if empty := EMPTY_WORDS.intersection(words):
        return f"the name {name!r} contains {min(empty)!r}, which has too many meanings"
    return ""


def bound_names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the identifier of every name that `node` itself defines."""
    match node:
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            yield node.lineno, node.name
        case ast.arg():
            yield node.lineno, node.arg
        case ast.Name(ctx=ast.Store()):
            yield node.lineno, node.id
        case ast.Attribute(ctx=ast.Store()):
            yield node.lineno, node.attr
        case ast.alias(asname=str(alias)):
            yield node.lineno, alias


def names(path: str, tree: ast.Module, wire_names: frozenset[str]) -> Iterator[Place]:
    """Check every identifier that a module defines."""
    for node in ast.walk(tree):
        for line, name in bound_names(node):
            if problem := name_problem(name, wire_names):
                yield Place(path, line, problem)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("__") and node.name.strip("_").split("_")[0] in THIRD_PERSON:
                yield Place(path, node.lineno, f"{node.name}(): a noun, is_…, has_… or an imperative verb")
            if node.name.startswith("test_") and len(node.name) > TEST_NAME_LENGTH:
                yield Place(path, node.lineno, f"{node.name}: {len(node.name)} characters, {TEST_NAME_LENGTH} at most")


def docstrings(path: str, tree: ast.Module) -> Iterator[Place]:
    """Check the first words of every docstring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and NOUN_CLAUSES.match(text):
                start = text.splitlines()[0][:80]
                yield Place(path, node.body[0].lineno, f"starts with a noun clause, not verb + object: “{start}”")


def python(path: str, source: str, wire_names: frozenset[str]) -> Iterator[Place]:
    """Check a Python file: docstrings, names, comments and messages."""
    tree = ast.parse(source)
    yield from docstrings(path, tree)
    yield from names(path, tree, wire_names)
    middle = getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (
            token.type in (tokenize.STRING, middle) and len(token.string.split()) > MESSAGE_WORDS
        ):
            yield from phrases(path, token.start[0], token.string)


def paragraphs(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield a document's paragraphs: their first line, their kind (prose, item, row or heading) and their text.

    Code blocks are left out. A list item is a paragraph, and so is a table's row.
    """
    start, kind, lines, fenced = 0, "", list[str](), False
    for number, line in enumerate([*text.splitlines(), ""], 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        bare = line.strip()
        new = (
            ""
            if fenced or not bare or bare.startswith(("```", "~~~", "<", "![", "---", "!!!", "???"))
            else "row"
            if bare.startswith("|")
            else "heading"
            if bare.startswith("#")
            else "item"
            if re.match(r"([-*+]|\d+\.) ", bare)
            else kind
            if kind in ("prose", "item") and lines
            else "prose"
        )
        if lines and (new != kind or new in ("row", "heading") or re.match(r"([-*+]|\d+\.) ", bare)):
            yield start, kind, " ".join(lines)
            lines = []
        if new:
            start, kind = (start, kind) if lines else (number, new)
            lines.append(bare)
        else:
            kind = ""


def sentences(paragraph: str) -> list[int]:
    """The number of words in each sentence of `paragraph`; code and link targets count as one word."""
    plain = re.sub(r"`[^`]*`", "x", paragraph)
    plain = re.sub(r"\]\([^)]*\)", "]", plain)
    return [len(part.split()) for part in re.split(r"(?<=[.!?:;])[\"”)*_]*\s+(?=\S)", plain) if part.strip()]


def document(path: str, text: str) -> Iterator[Place]:
    """Check a Markdown file: phrases, the length of sentences and paragraphs."""
    lengths: list[int] = []
    for line, kind, paragraph in paragraphs(text):
        yield from phrases(path, line, re.sub(r"`[^`]*`", "`x`", paragraph))
        if kind in ("row", "heading"):
            continue
        counts = sentences(paragraph)
        lengths += counts
        for words in counts:
            if words > SENTENCE_WORDS:
                yield Place(path, line, f"a sentence of {words} words, {SENTENCE_WORDS} at most: “{paragraph[:60]}…”")
        if sum(counts) > PARAGRAPH_WORDS:
            yield Place(
                path, line, f"a paragraph of {sum(counts)} words, {PARAGRAPH_WORDS} at most: “{paragraph[:60]}…”"
            )
    if lengths and (mean := sum(lengths) / len(lengths)) > MEAN_SENTENCE_WORDS:
        yield Place(path, 1, f"{mean:.1f} words in a sentence on average, {MEAN_SENTENCE_WORDS} at most")


def wire_vocabulary(root: Path) -> frozenset[str]:
    """The names of fields, messages and methods in folders named `protos`, which other programs rely on."""
    return frozenset(
        name
        for folder in (root / "protos", *root.glob("service/embereye/addons/*/protos"))
        for proto in folder.rglob("*.proto")
        for name in re.findall(r"\b([A-Za-z]\w*)\b\s*(?:=\s*\d+|\{|\()", proto.read_text())
    )


def check(root: Path, paths: list[str]) -> list[Place]:
    """Check the files among `paths`, or every file that Git knows, in the order of their names."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *paths],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    wire_names = wire_vocabulary(root)
    places: list[Place] = []
    for path in sorted(listed.stdout.splitlines()):
        file = root / path
        if SKIPPED.match(path) or not file.is_file() or file.is_symlink():
            continue
        text = file.read_text(errors="replace")
        if path.endswith(".py") or ("python" in text.partition("\n")[0] and text.startswith("#!")):
            places += python(path, text, wire_names)
        elif path.endswith(".md"):
            places += document(path, text)
        elif path.endswith(".proto"):
            places += phrases(path, 1, re.sub(r"^[^/]*(//|$)", "", text, flags=re.MULTILINE))  # comments
        elif TEXTS.search(path):
            places += phrases(path, 1, text)
    return places


def main() -> int:
    """Print every place that departs from the rules, then their number."""
    parser = argparse.ArgumentParser(prog="python -m lint.plain_english", description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", metavar="PATH", help="files and folders; everything by default")
    parser.add_argument("--quiet", action="store_true", help="print the number of places only")
    options = parser.parse_args()
    places = check(Path.cwd(), options.paths)
    if not options.quiet:
        print(*places, sep="\n")
    print(f"{len(places)} places")
    return 1 if places else 0


if __name__ == "__main__":
    sys.exit(main())
