"""The languages of the console: one file of texts for each in `static/messages`, named by its language tag.

A further language is a further file. A text that it lacks is shown in English. A text is a sentence with {names} for
values, or one sentence for each plural of the language, chosen by the value `n`. Pages have their texts in place of
{{keys}}; scripts get all of them in a block of data, so they need no further request and no wait.
"""

import html
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib import resources
from importlib.resources.abc import Traversable

from aiohttp import web

Text = str | Mapping[str, str]  # or one for each plural, as in Intl.PluralRules
Texts = Mapping[str, Text]

FALLBACK = "en"
COOKIE = "embereye-language"  # a person's choice in the console
_KEY = re.compile(r"\{\{([\w.-]+)\}\}")


class Languages:
    """The texts of all languages: the hub's own ones and those of add-ons."""

    def __init__(self, folders: Sequence[Traversable] = ()) -> None:
        """`folders` have message files of add-ons."""
        self._folders = (resources.files("embereye.hub").joinpath("static", "messages"), *folders)

    @cached_property
    def texts(self) -> Mapping[str, Texts]:
        """The texts by language and key. ValueError names a file that is not JSON."""
        collected: dict[str, dict[str, Text]] = {}
        for folder in self._folders:
            for file in folder.iterdir():
                if file.name.endswith(".json"):
                    try:
                        texts = json.loads(file.read_text(encoding="utf-8"))
                    except ValueError as error:
                        raise ValueError(f"{file}: not JSON ({error})") from error
                    collected.setdefault(file.name.removesuffix(".json"), {}).update(texts)
        english = collected[FALLBACK]
        return {language: {**english, **texts} for language, texts in sorted(collected.items())}

    def of(self, request: web.Request) -> str:
        """Choose the language of a page: the person's choice, then the browser's preferences, then English."""
        if (chosen := request.cookies.get(COOKIE, "")) in self.texts:
            return chosen
        return next(
            (tag for tag in _accepted(request.headers.get("Accept-Language", "")) if tag in self.texts), FALLBACK
        )

    def translate(self, page: str, language: str) -> str:
        """Return `page` in `language`, with all texts at {{messages}} and the language's tag at {{language}}."""
        texts = self.texts[language]

        def text_of(match: re.Match[str]) -> str:
            key = match.group(1)
            if key == "language":
                return language
            return self._block(texts) if key == "messages" else html.escape(str(texts[key]))

        return _KEY.sub(text_of, page)

    def _block(self, texts: Texts) -> str:
        # A block of data is no script: browsers do not run it, and the policy against inline scripts allows it.
        data = json.dumps(texts, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
        return f'<script id="messages" type="application/json" data-languages="{" ".join(self.texts)}">{data}</script>'


def _accepted(header: str) -> list[str]:
    """The languages of the header Accept-Language, the preferred first, each followed by it without its region."""
    weighted: list[tuple[float, str]] = []
    for part in header.split(","):
        tag, _, parameter = part.strip().partition(";")
        weight = parameter.strip().removeprefix("q=") or "1"
        if tag and re.fullmatch(r"[01](\.\d{0,3})?", weight) and float(weight) > 0:
            weighted.append((float(weight), tag.strip()))
    tags = [tag for _, tag in sorted(weighted, key=lambda pair: -pair[0])]
    return [name for tag in tags for name in dict.fromkeys((tag, tag.partition("-")[0].lower()))]
