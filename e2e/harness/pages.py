"""The examples in documents."""

import re
import textwrap
from pathlib import Path

BLOCK = re.compile(r"^ *```yaml\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def yaml_examples(page: Path) -> list[tuple[int, str]]:
    """The line and the text of each YAML block of `page`, without the indentation of a list around it."""
    text = page.read_text()
    return [(text.count("\n", 0, match.start(1)) + 1, textwrap.dedent(match[1])) for match in BLOCK.finditer(text)]
