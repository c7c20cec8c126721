"""The examples in the pages are files that the hub accepts."""

import re
from pathlib import Path

import apprise
import pytest
from harness.pages import yaml_examples

from embereye.addons.notify.channel import check_routes
from embereye.addons.notify.config import parse_config

FOLDER = Path(__file__).parents[1]
PAGES = [FOLDER / "README.md", *sorted((FOLDER / "docs").glob("*.md"))]
EXAMPLES = [pytest.param(text, id=f"{page.name}:{line}") for page in PAGES for line, text in yaml_examples(page)]


@pytest.mark.parametrize("text", EXAMPLES)
def test_an_example_is_accepted(text: str, tmp_path: Path) -> None:
    check_routes(parse_config(text, tmp_path))


def test_each_address_in_a_table_has_a_service() -> None:
    addresses = "\n".join(page.read_text() for page in PAGES)
    schemes = {scheme for scheme in re.findall(r"`(\w+)://", addresses) if scheme not in {"webpush", "https"}}
    assert {"tgram", "slack", "workflows", "discord", "signals", "matrixs", "ntfys"} <= schemes
    plugins = apprise.Apprise().details()["schemas"]
    known = {name for each in plugins for kind in ("protocols", "secure_protocols") for name in each[kind] or ()}
    assert schemes - known == set()
