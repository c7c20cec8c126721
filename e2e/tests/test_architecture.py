"""The walks of docs/concepts/internals.md and the glossary of ARCHITECTURE.md match the code and the documents."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "service/embereye", ROOT / "operator/embereye_operator"
INTERNALS = (ROOT / "docs/concepts/internals.md").read_text()
GLOSSARY = (ROOT / "ARCHITECTURE.md").read_text().split("## Glossary\n")[1]
TERMS = [term for term in re.findall(r"^\| (\w[\w -]*) \| ", GLOSSARY, re.MULTILINE) if term != "word"]
MOST_STOPS = 12
MOST_TERMS = 40
WALKS = INTERNALS.split("## Three walks\n")[1].split("\n## ")[0].split("\n### ")[1:]


@pytest.mark.parametrize("walk", WALKS, ids=lambda text: text.splitlines()[0])
def test_every_stop_of_a_walk_is_in_the_module_that_it_names(walk: str) -> None:
    stops = re.findall(r"^\d+\. (.*)$", walk, re.MULTILINE)
    assert 5 < len(stops) <= MOST_STOPS
    source = ""
    for stop in stops:
        for name in re.findall(r"`([^`]+)`", stop):
            if name.endswith(".py"):
                (source,) = [(folder / name).read_text() for folder in PACKAGES if (folder / name).exists()]
            elif source:
                last = name.rpartition(".")[2].rstrip("…")
                assert re.search(rf"(def|class) {last}", source), f"{name} is not where the walk says: {stop}"


def test_every_file_that_internals_names_exists() -> None:
    for name in re.findall(r"`((?:\w+/)+\w+\.py)`", INTERNALS):
        places = [ROOT, ROOT / "e2e", ROOT / "operator", ROOT / "service/embereye/hub", *PACKAGES]
        assert any((place / name).exists() for place in places), name


def test_the_glossary_is_short_and_sorted() -> None:
    assert 20 < len(TERMS) <= MOST_TERMS
    assert sorted(TERMS) == TERMS


@pytest.mark.parametrize("term", TERMS)
def test_a_word_of_the_glossary_is_used_in_code_and_documents(term: str) -> None:
    pattern = re.compile(re.sub(r"[ -]", "[ _-]?", term) + r"|" + re.sub(r"[ -]", "", term), re.IGNORECASE)
    assert any(pattern.search(path.read_text()) for folder in PACKAGES for path in folder.rglob("*.py"))
    assert any(pattern.search(path.read_text()) for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
