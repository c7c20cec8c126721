"""The console's texts: complete in every language, and nowhere but in the message files."""

import json
import re
import zlib
from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import pytest
from harness.browser import Browser
from harness.need import BROWSER

from embereye.hub.http.languages import Languages
from embereye.hub.http.pages import STATIC as SERVED

from .house import TOKEN, House

ADDONS = [addon for addon in resources.files("embereye.addons").iterdir() if addon.joinpath("messages").is_dir()]
STATIC = resources.files("embereye.hub").joinpath("static")
FOLDERS = {"the hub": (STATIC, STATIC.joinpath("messages"))} | {
    addon.name: (addon.joinpath("static"), addon.joinpath("messages")) for addon in ADDONS
}
PAGE_BYTES = 130_000  # of everything that opening the console with all add-ons loads, compressed as it is sent

# Tokens of JavaScript: a comment, a regular expression after an operator, or a text.
TOKEN_OF_SCRIPT = re.compile(
    r"//[^\n]*|/\*.*?\*/|(?<=[(,=:\[!&|?{};])\s*/(?![/*])(?:\\.|\[(?:\\.|[^\]\n])*\]|[^/\n\\])+/\w*"
    r"""|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
    re.DOTALL,
)
# A word of a sentence: two words, a capital, or a word at an edge beside a value.
VISIBLE = re.compile(r"[a-z]{2}[,.;:]? [A-Za-z]|^[A-Z][a-z]+|[a-z]{2} $|^ [a-z]{2}|[a-z] ?…$")
NAMES = frozenset(
    [
        "AbortError",
        "ArrowDown",
        "ArrowLeft",
        "ArrowRight",
        "ArrowUp",
        "Backspace",
        "Content-Type",
        "DOMContentLoaded",
        "Delete",
        "EmberEye",
        "Enter",
        "Escape",
        "NotAllowedError",
        "PushManager",
        "TimeoutError",
        "tag testing",
    ]
)


def messages(folder: Traversable) -> dict[str, dict[str, str | dict[str, str]]]:
    return {
        file.name.removesuffix(".json"): json.loads(file.read_text(encoding="utf-8"))
        for file in folder.iterdir()
        if file.name.endswith(".json")
    }


def forms(text: str | dict[str, str]) -> list[str]:
    return [text] if isinstance(text, str) else list(text.values())


def texts_of(script: str) -> Iterator[str]:
    """The texts in the JavaScript source `script`: quoted ones, and the parts of templates between their values."""
    at, depth = 0, list[int]()  # depth: of braces, for each template around
    while at < len(script):
        if script[at] == "`" or (depth and not depth[-1] and script[at] == "}"):
            if script[at] == "}":
                depth.pop()
            match = re.compile(r"((?:\\.|\$(?!\{)|[^`$\\])*)(`|\$\{)", re.DOTALL).match(script, at + 1)
            assert match
            yield match.group(1)
            if match.group(2) == "${":
                depth.append(0)
            at = match.end()
        elif match := TOKEN_OF_SCRIPT.match(
            script, at if script[at] in "/\"'" else at + 1 if script[at + 1 : at + 2] == "/" else at
        ):
            if (token := match.group().strip())[0] in "\"'":
                yield token[1:-1]
            at = match.end()
        else:
            if depth:
                depth[-1] += {"{": 1, "}": -1}.get(script[at], 0)
            at += 1


def styles() -> set[str]:
    """The names in the style sheet (classes, elements and values), and the classes of elements that scripts make."""
    css = STATIC.joinpath("console.css").read_text(encoding="utf-8")
    scripts = "".join(file.read_text(encoding="utf-8") for file in STATIC.iterdir() if file.name.endswith(".js"))
    made = " ".join(re.findall(r'make\("\w+", "([\w -]+)"', scripts))
    return set(re.findall(r"[a-z][\w-]*", css)) | set(made.split()) | {"article"}


def is_visible(text: str, known: set[str]) -> bool:
    if text in NAMES or text.startswith(("#", ".", "[", "/", "--")) or re.search(r"=|\w\[|__|> ", text):
        return False
    return bool(VISIBLE.search(text)) and not set(text.replace(",", " ").split()) <= known


@pytest.mark.parametrize("name", FOLDERS)
def test_no_language_lacks_a_text_or_has_other_values_in_it(name: str) -> None:
    languages = messages(FOLDERS[name][1])
    assert {"de", "en"} <= languages.keys()
    for language, texts in languages.items():
        assert texts.keys() == languages["en"].keys(), language
        for key, text in texts.items():
            values = {
                frozenset(re.findall(r"\{(\w+)\}", form)) for form in (*forms(text), *forms(languages["en"][key]))
            }
            assert len(values) == 1, f"{language}: {key}: {values}"
            assert all(form.strip() for form in forms(text)), f"{language}: {key}"


@pytest.mark.parametrize("name", FOLDERS)
def test_every_text_is_used_and_exists(name: str) -> None:
    static, folder = FOLDERS[name]
    keys = set(messages(folder)["en"]) | messages(STATIC.joinpath("messages"))["en"].keys()
    files = [file for file in static.iterdir() if file.name.endswith((".js", ".html", ".webmanifest"))]
    source = "\n".join(file.read_text(encoding="utf-8") for file in files)
    used = set(re.findall(r"\{\{([\w.-]+)\}\}", source)) | set(re.findall(r'\bt\("([\w.-]+)"', source))
    assert used - {"language", "messages"} <= keys
    quoted = set(re.findall(r'"([\w.-]+)"', source)) | used
    begun = tuple(set(re.findall(r"\bt\(`([\w.-]+)\$\{", source)))
    assert [key for key in messages(folder)["en"] if key not in quoted and not key.startswith(begun)] == []


@pytest.mark.parametrize("name", FOLDERS)
def test_no_script_has_a_visible_text_of_its_own(name: str) -> None:
    known = styles()
    for file in FOLDERS[name][0].iterdir():
        if file.name.endswith(".js"):
            visible = [text for text in texts_of(file.read_text(encoding="utf-8")) if is_visible(text, known)]
            assert visible == [], file.name


@pytest.mark.parametrize(
    ("source", "texts"),
    [
        ('say(x, "No alarm"); // "a comment"', ["No alarm"]),
        ("`${a ? `, ${b} of` : ''} left`", ["", ", ", " of", "", " left"]),
        ('x.replace(/"/g, "y"); /* "z" */', ["y"]),
        ("`${{ a: 1 }.a} m`", ["", " m"]),
    ],
)
def test_texts_are_found_in_scripts(source: str, texts: list[str]) -> None:
    assert list(texts_of(source)) == texts


@pytest.mark.parametrize("page", ["index.html", "login.html", "offline.html"])
def test_no_page_has_a_visible_text_of_its_own(page: str) -> None:
    html = STATIC.joinpath(page).read_text(encoding="utf-8")
    html = re.sub(r"<code>.*?</code>|<!.*?>|\{\{[\w.-]+\}\}|EmberEye", "", html)
    words = [text for text in re.findall(r">([^<]*)<", html) if re.search(r"[^\W\d_]", text)]
    labels = re.findall(r'\s(?:aria-label|alt|placeholder|title)="([^"]*[^\W\d_][^"]*)"', html)
    assert words + labels == []


def test_every_script_is_served() -> None:
    scripts = {file.name for file in STATIC.iterdir() if file.name.endswith(".js")}
    assert {name for name in SERVED if name.endswith(".js")} == scripts - {"service-worker.js"}


def test_the_console_stays_small() -> None:
    languages = Languages([messages for _, messages in FOLDERS.values()])
    files = [file for folder, _ in FOLDERS.values() if folder.is_dir() for file in folder.iterdir()]
    sent = [file.read_bytes() for file in files if file.name.endswith((".js", ".css", ".svg"))]
    for language in languages.texts:
        page = languages.translate(STATIC.joinpath("index.html").read_text(encoding="utf-8"), language).encode()
        size = sum(len(zlib.compress(data)) for data in (page, *sent))
        assert size <= PAGE_BYTES, f"{language}: {size} bytes"


def test_a_message_file_that_is_not_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "fr.json").write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"fr\.json: not JSON"):
        _ = Languages([tmp_path]).texts


def test_a_language_that_lacks_a_text_shows_it_in_english(tmp_path: Path) -> None:
    (tmp_path / "fr.json").write_text('{"page.now": "Maintenant"}', encoding="utf-8")
    page = Languages([tmp_path]).translate("{{language}}: {{page.now}}, {{page.day}}", "fr")
    assert page == "fr: Maintenant, Day"


@pytest.mark.needs(BROWSER)
async def test_the_console_speaks_the_language_of_the_browser_or_the_chosen_one(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn()
    await browser.sign_in(house.base, TOKEN, locale="de-AT", zone="Asia/Tokyo")
    assert await browser.ask("evaluate", script="document.documentElement.lang") == "de"
    await browser.until("document.querySelector('#verdict-word').textContent.startsWith('ALARM · kitchen')")
    await browser.until("document.querySelector('#focus-sentence').textContent.includes(' in kitchen, seit ')")
    await browser.until("document.querySelector('#clock').textContent.includes('Zentrale: ')")
    # Words only, as the browser shows them: a key that was not replaced has a dot in it.
    assert (
        await browser.ask("evaluate", script="/\\b(page|focus|verdict|state)\\.[a-z]/.test(document.body.innerText)")
        is False
    )
    await browser.ask("select", selector="#language", value="en")
    await browser.until("document.documentElement.lang === 'en'")
    await browser.until("document.querySelector('#focus-sentence').textContent.includes(', since ')")
    assert await browser.ask("problems") == []
