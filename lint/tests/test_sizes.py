"""The size check finds each thing that is too large, and nothing else."""

import ast

import pytest

from lint.sizes import check, problems


def sizes(source: str) -> list[tuple[str, str]]:
    return [(name, problem) for _, name, problem in problems(ast.parse(source))]


def function(lines: int, docstring: str = "") -> str:
    return "\n".join(["def work():", *([f"    {docstring}"] if docstring else ()), *["    pass"] * (lines - 1)])


def test_a_function_above_50_lines_is_found_and_one_of_50_passes():
    assert sizes(function(51)) == [("work", "51 lines, more than 50")]
    assert sizes(function(50)) == []


def test_a_docstring_does_not_count_as_lines():
    assert sizes(function(50, '"""Do\n\n    the work."""')) == []


def test_a_function_that_only_returns_a_table_passes():
    rows = "\n".join(f"        {number}," for number in range(60))
    assert sizes(f"def table():\n    return [\n{rows}\n    ]") == []
    assert sizes(f"def table():\n    first = 1\n    return [\n{rows}\n    ]") == [("table", "64 lines, more than 50")]


@pytest.mark.parametrize(("count", "found"), [(20, []), (21, [("Hub", "21 attributes, more than 20")])])
def test_attributes_count_once_and_in_all_methods(count, found):
    body = "\n".join(f"    def method_{number}(self):\n        self.a{number} = self.a0 = 1" for number in range(count))
    assert sizes(f"class Hub:\n{body}") == found


@pytest.mark.parametrize(("count", "found"), [(8, []), (9, [("__init__", "9 parameters, more than 8")])])
def test_parameters_of_a_constructor_count_without_self(count, found):
    names = ", ".join(f"p{number}" for number in range(count))
    assert sizes(f"class Hub:\n    def __init__(self, *, {names}): pass\n    def other(self, {names}): pass") == found


def test_a_named_file_is_checked(tmp_path):
    (tmp_path / "module.py").write_text(function(51))
    assert check(tmp_path, ["module.py"]) == ["module.py:1: work: 51 lines, more than 50. Split it."]
