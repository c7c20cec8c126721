"""The examples in documents."""

import re
import textwrap
from pathlib import Path


def yaml_examples(page: Path) -> list[tuple[int, str]]:
    """The line and the text of each YAML block of `page`, without the indentation of a list around it."""
    return _blocks(page, "yaml")


def examples(page: Path, language: str) -> list[str]:
    """The text of each block of `page` in `language`, such as nginx or sh."""
    return [text for _, text in _blocks(page, language)]


def _blocks(page: Path, language: str) -> list[tuple[int, str]]:
    text = page.read_text()
    blocks = re.finditer(rf"^ *```{language}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
    return [(text.count("\n", 0, match.start(1)) + 1, textwrap.dedent(match[1])) for match in blocks]
