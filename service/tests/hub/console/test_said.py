"""Sentences of the hub and of shards in the console's language."""

import json

import pytest
from harness.browser import Browser
from harness.need import BROWSER

from embereye.levels import Kind, Level, Sense
from embereye.shard.coverage import Watch
from embereye.units import HOUR, MINUTE, SECOND
from embereye.v1.alarms_pb2 import FalseAlarm
from embereye.v1.evidence_pb2 import EvidenceItem
from embereye.v1.types_pb2 import Term
from embereye.zone.fusion import judge
from embereye.zone.sentences import sign

from .house import CAMERAS, TOKEN, House

pytestmark = pytest.mark.needs(BROWSER)
NOW = HOUR
HEARD = NOW - 9 * SECOND


def item(kind: Kind, device: str, *why: Term, level: Level = Level.ALARM, score: float = 0) -> EvidenceItem:
    sense = Sense.CAMERA if kind in {Kind.FLAME, Kind.SMOKE} else Sense.SENSOR
    return EvidenceItem(
        id=device, episode=device, fleet=CAMERAS, device=device, zone="hall", kind=kind.wire, sense=sense.wire,
        level=level.wire, score=score, since_ns=NOW, until_ns=NOW, why=why,
    )  # fmt: skip


HOT = item(Kind.HEAT, "s-1", Term(name="temperature.max", value=61.3, threshold=57, unit="°C"))
FLAME = item(Kind.FLAME, "cam-1", Term(name="flame.lasted", value=1.6, threshold=1.5, unit="s"))
SMOKE = item(
    Kind.SMOKE, "cam-2", Term(name="smoke.likeness", value=40, unit="%"), Term(name="smoke.usual", value=5, unit="%"),
    Term(name="smoke.growing", value=12, unit="s"), Term(name="smoke.drift.left", value=1),
)  # fmt: skip
DOUBTED = item(Kind.FLAME, "cam-3", level=Level.PRE_ALARM, score=0.93)
MARK = FalseAlarm(alarm="a", who="Ada", reason="steam", time_ns=NOW, signs=[HOT])
# What the program says, and what a German reader reads.
SENTENCES = {
    Watch().reason(NOW, 5 * SECOND): "noch nie gehört",
    Watch().reason(NOW, 10 * MINUTE, sleeps=True): "noch keine Meldung, erwartet wird alle 10 min eine",
    Watch(HEARD).reason(NOW, 5 * SECOND): "seit 9,0 s keine Daten, erlaubt sind 5 s",
    Watch(1).reason(NOW, MINUTE, sleeps=True): "letzte Meldung vor 60 min, erlaubt sind 60 s",
    Watch(NOW).reason(NOW, 5 * SECOND): "gehört, aber noch nicht ausgewertet",
    Watch(NOW, HEARD).reason(NOW, 5 * SECOND): "gehört, aber zuletzt vor 9,0 s ausgewertet, erlaubt sind 5 s",
    "cam-1 is dark: no shard reports it; source: cannot connect: connection refused": (
        "cam-1 ist nicht überwacht: kein Shard meldet es; Quelle: keine Verbindung: Verbindung abgelehnt"
    ),
    sign(HOT): "Hitze 61,3 °C ≥ 57 °C bei s-1",
    sign(FLAME): "Flamme 1,6 s ≥ 1,5 s bei cam-1",
    sign(SMOKE): "rauchähnlich: 40 % dieser Stelle, sonst 5 %; zunehmend seit 12 s; zieht nach links bei cam-2",
    judge([HOT, FLAME]).why: "Flamme 1,6 s ≥ 1,5 s bei cam-1 und Hitze 61,3 °C ≥ 57 °C bei s-1 stimmen überein",
    f"{judge([DOUBTED]).why}; {judge([DOUBTED]).confirmation}": (
        "Flamme mit dem Wert 0,93 bei cam-3; ein zweites Anzeichen würde es bestätigen"
    ),
    judge([HOT], [MARK]).why: (
        "Hitze 61,3 °C ≥ 57 °C bei s-1, wie in einem Alarm, den Ada am 1970-01-01 als Fehlalarm markiert hat (steam)"
    ),
    "12 live pictures are shown already. Close one.": "Es werden schon 12 Live-Bilder gezeigt. Schließen Sie eines.",
    "4 live pictures are shown already from 10.1.2.3. Close one.": (
        "Bei 10.1.2.3 werden schon 4 Live-Bilder gezeigt. Schließen Sie eines."
    ),
    "its shard shows 16 devices already. Close one.": "sein Shard zeigt schon 16 Geräte. Schließen Sie eines.",
    "acknowledged by Ada: the cook; look at home": "quittiert von Ada: the cook; look at home",
    "nothing that the page knows": "nothing that the page knows",
    "": "",
}


async def translated(browser: Browser) -> list[str]:
    """All sentences as the page has them."""
    script = f"import('/static/said.js').then(({{ said }}) => {json.dumps(list(SENTENCES))}.map(said))"
    lines: list[str] = await browser.ask("evaluate", script=script)
    return lines


async def test_sentences_of_the_hub_are_in_the_language_of_the_page(house: House, browser: Browser) -> None:
    assert await translated(browser) == list(SENTENCES)
    await browser.sign_in(house.base, TOKEN, locale="de-AT")
    assert await translated(browser) == list(SENTENCES.values())


async def test_a_german_page_says_in_german_what_is_dark_and_what_burns(house: House, browser: Browser) -> None:
    await house.furnish()
    await house.burn()
    await browser.sign_in(house.base, TOKEN, locale="de-AT")
    await browser.until("document.querySelector('#coverage-dark').textContent.includes(': kein Shard meldet es')")
    await browser.until("document.querySelector('#events').innerText.includes('Hitze 61,3 °C ≥ 57 °C bei s-00000')")
    why = "document.querySelector('#focus-why').textContent"
    await browser.until(f"{why} === 'Es begann mit: Hitze 61,3 °C ≥ 57 °C bei s-00000'")
