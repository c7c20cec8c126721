"""The walks and words of docs/concepts/internals.md exist in the code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "service/embereye", ROOT / "operator/embereye_operator"
TEXT = (ROOT / "docs/concepts/internals.md").read_text()
MOST_STOPS = 12
MOST_TERMS = 40


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


WALKS = [text.replace("\n", " ") for text in section("Three walks").split("\n\n")[1:]]


@pytest.mark.parametrize("walk", WALKS, ids=lambda text: text.split("**")[1])
def test_every_stop_of_a_walk_is_in_the_module_that_it_names(walk: str) -> None:
    stops = walk.split(" · ")
    assert 5 < len(stops) <= MOST_STOPS
    source = ""
    for stop in stops:
        for name in re.findall(r"`([^`]+)`", stop[stop.index("`") :]):
            if name.endswith(".py"):
                (source,) = [(folder / name).read_text() for folder in PACKAGES if (folder / name).exists()]
            elif source:
                last = name.rpartition(".")[2].rstrip("…")
                assert re.search(rf"(def|class) {last}", source), f"{name} is not where the walk says: {stop}"


def test_the_glossary_is_short_sorted_and_of_words_that_the_code_uses() -> None:
    terms = re.findall(r"^\| (\w[\w -]*) \| (?!meaning)", section("Glossary"), re.MULTILINE)
    assert 20 < len(terms) <= MOST_TERMS
    assert terms == sorted(terms)
    code = " ".join(path.read_text() for folder in PACKAGES for path in folder.rglob("*.py")).lower()
    for term in terms:
        assert re.search(re.sub(r"[ -]", "[ _-]?", term), code), term
