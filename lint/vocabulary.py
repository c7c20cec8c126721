"""The words that the project's English does without, read from `vocabulary.toml`."""

import re
import tomllib
from pathlib import Path

_LISTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())

NOUN_CLAUSES = re.compile(rf"({'|'.join(_LISTS['noun_clauses'].split())})\b")
EMPTY_NAMES = frozenset(_LISTS["empty_names"].split())
EMPTY_WORDS = frozenset(_LISTS["empty_words"].split())
THIRD_PERSON = frozenset(_LISTS["third_person"].split())
PHRASES: dict[str, str] = _LISTS["phrases"]
PHRASE = re.compile("|".join(rf"\b(?:{pattern})\b" for pattern in PHRASES), re.IGNORECASE)


def remedy(phrase: str) -> str:
    """The plainer words for `phrase`, which `PHRASE` has matched."""
    return next(better for pattern, better in PHRASES.items() if re.fullmatch(pattern, phrase, re.IGNORECASE))
