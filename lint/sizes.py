"""Check that classes, constructors and functions stay small enough to read at once.

Run it as `python -m lint.sizes [FILE…]` from the project's root. It prints one line for each that is too large, then
their number, and exits with 1 if there is any. Tests and generated code are not checked, nor is a function that only
returns a display: that is a table of data.
"""

import argparse
import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

MAX_ATTRIBUTES = 20  # set on `self` in one class
MAX_PARAMETERS = 8  # of a constructor, without `self`
MAX_LINES = 50  # of a function, without its docstring
CHECKED = ("service/", "operator/")
SKIPPED = ("/tests/", "/v1/")  # tests, and what is generated from the protos
TABLES = (ast.Dict, ast.List, ast.Tuple, ast.Set)


def problems(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the name and the problem of everything in `tree` that is too large."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            if (count := len(_attributes(node))) > MAX_ATTRIBUTES:
                yield node.lineno, node.name, f"{count} attributes, more than {MAX_ATTRIBUTES}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            arguments = node.args
            count = len([*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]) - 1
            if node.name == "__init__" and count > MAX_PARAMETERS:
                yield node.lineno, node.name, f"{count} parameters, more than {MAX_PARAMETERS}"
            if (count := _lines(node)) > MAX_LINES:
                yield node.lineno, node.name, f"{count} lines, more than {MAX_LINES}"


def _attributes(node: ast.ClassDef) -> set[str]:
    return {
        child.attr
        for child in ast.walk(node)
        if isinstance(child, ast.Attribute)
        and isinstance(child.ctx, ast.Store)
        and isinstance(child.value, ast.Name)
        and child.value.id == "self"
    }


def _lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of lines of `function` without its docstring; 0 for a table of data."""
    statements = list(function.body)
    count = (function.end_lineno or 0) - function.lineno + 1
    if ast.get_docstring(function) is not None:
        docstring = statements.pop(0)
        count -= (docstring.end_lineno or 0) - docstring.lineno + 1
    is_table = [isinstance(statement, ast.Return) and isinstance(statement.value, TABLES) for statement in statements]
    return 0 if is_table == [True] else count


def check(root: Path, paths: list[str]) -> list[str]:
    """Check `paths` below `root`, or all of its files that are under version control."""
    if not paths:
        command = ["git", "ls-files", "*.py"]
        paths = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout.split()
        paths = [path for path in paths if path.startswith(CHECKED) and not any(part in path for part in SKIPPED)]
    return [
        f"{path}:{line}: {name}: {problem}. Split it."
        for path in paths
        if (root / path).exists()
        for line, name, problem in problems(ast.parse((root / path).read_text()))
    ]


def main() -> int:
    """Run the check from the command line; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", metavar="FILE", help="files to check; default: the whole project")
    places = check(Path.cwd(), parser.parse_args().paths)
    if places:
        print(*places, sep="\n")
    print(f"{len(places)} too large")
    return 1 if places else 0


if __name__ == "__main__":
    raise SystemExit(main())
