"""Devices are added, changed and removed in a real Chromium."""

import contextlib
from collections.abc import AsyncIterator

import pytest
import yaml
from harness.browser import Browser, run_browser
from harness.need import BROWSER

from .conftest import CAMERAS, SENSORS, TOKEN, Site, Start

pytestmark = pytest.mark.needs(BROWSER)
ADD = "document.querySelector('#setup-adders button')"
OK = "document.querySelector('#setup-ok')"
SOURCE = "document.querySelector('#setup-source').parentElement"
CALIBRATION = "document.querySelector('#setup-calibration').parentElement"


@contextlib.asynccontextmanager
async def signed_in(site: Site) -> AsyncIterator[Browser]:
    async with run_browser() as window:
        await window.sign_in(site.base, TOKEN)
        yield window


async def press(browser: Browser, element: str) -> None:
    await browser.ask("evaluate", script=f"{element}.click()")


async def test_a_camera_is_tried_added_and_undone(start: Start, camera: str) -> None:
    async with start("cameras.yaml") as site, signed_in(site) as browser:
        await browser.ask("goto", url=f"{site.base}/#devices")
        await browser.until(f"{ADD} && !document.querySelector('#setup-adders').hidden")
        await press(browser, ADD)
        await browser.ask("fill", selector="#setup-address", text=camera)
        await press(
            browser, "[...document.querySelectorAll('#setup button')].find((one) => one.innerText === 'Try it')"
        )
        await browser.until("document.querySelector('#setup-still').naturalWidth === 160")
        assert await browser.ask("evaluate", script="document.querySelector('#setup-source').value") == camera
        await browser.ask("fill", selector="#setup-id", text="dock")
        await browser.ask("fill", selector="#setup-zone", text="dock")
        await press(browser, OK)
        await browser.until("document.querySelector('#setup-diff').innerText.includes('+    - {id: dock, zone: dock')")
        assert await browser.ask("axe") == []
        assert (site.folder / "cameras.yaml").read_text() == CAMERAS
        await press(browser, OK)
        await browser.until("!document.querySelector('#setup').open")
        assert "id: dock" in (site.folder / "cameras.yaml").read_text()
        await browser.until("!document.querySelector('#setup-undo').hidden")
        await press(browser, "document.querySelector('#setup-undo')")
        await browser.until("document.querySelector('#toast').innerText.startsWith('Undone: add dock')")
        assert (site.folder / "cameras.yaml").read_text() == CAMERAS
        assert await browser.ask("problems") == []


async def test_a_sensor_is_chosen_by_kind_read_and_added(start: Start, boiler: str) -> None:
    async with start("sensors.yaml") as site, signed_in(site) as browser:
        await browser.ask("goto", url=f"{site.base}/#devices")
        await browser.until(f"{ADD} && !document.querySelector('#setup-adders').hidden")
        await press(browser, f"{ADD}.nextElementSibling")
        await browser.until("document.querySelector('#setup').open")
        assert await browser.ask("evaluate", script=f"{SOURCE}.hidden")
        await browser.ask("select", selector="#setup-sensor", value="gas")
        assert await browser.ask("evaluate", script=f"{CALIBRATION}.innerText.includes('R0')")
        await browser.ask("select", selector="#setup-sensor", value="modbus")
        assert await browser.ask("evaluate", script="document.querySelector('#setup-mapping').value.includes('input:')")
        await browser.ask("select", selector="#setup-sensor", value="http")
        await browser.ask("fill", selector="#setup-source", text=boiler)
        await browser.ask("fill", selector="#setup-mapping", text="temperature: celsius\nsmoke: alarm.smoke=ON")
        await press(browser, "document.querySelector('#setup-read')")
        read = "document.querySelector('#setup-newest').innerText.includes('smoke off, temperature 41.5 °C')"
        await browser.ask("until", script=read, seconds=85)
        await browser.ask("fill", selector="#setup-id", text="boiler")
        await browser.ask("fill", selector="#setup-zone", text="cellar")
        await press(browser, OK)
        await browser.until(
            "document.querySelector('#setup-diff').innerText.includes('+    - {id: boiler, zone: cellar')"
        )
        assert await browser.ask("axe") == []
        await press(browser, OK)
        await browser.until("!document.querySelector('#setup').open")
        (_, boiler_of) = yaml.safe_load((site.folder / "sensors.yaml").read_text())["spec"]["sensors"]
        fields = {"temperature": "celsius", "smoke": "alarm.smoke=ON"}
        assert boiler_of == {"id": "boiler", "zone": "cellar", "source": boiler, "fields": fields}
        await browser.until("!document.querySelector('#setup-undo').hidden")
        await press(browser, "document.querySelector('#setup-undo')")
        await browser.until("document.querySelector('#toast').innerText.startsWith('Undone: add boiler')")
        assert (site.folder / "sensors.yaml").read_text() == SENSORS
        assert await browser.ask("problems") == []


async def test_a_device_is_changed_masked_and_removed(start: Start) -> None:
    async with start("cameras.yaml") as site, signed_in(site) as browser:
        await browser.ask("goto", url=f"{site.base}/#device?fleet=default/cameras/yard&id=gate")
        await browser.until("document.querySelector('#setup-edit') && !document.querySelector('#setup-edit').hidden")
        await press(browser, "document.querySelector('#setup-edit')")
        await browser.until("document.querySelector('#setup-zone').value === 'yard'")
        await browser.ask("fill", selector="#setup-zone", text="gate")
        await press(browser, OK)
        await browser.until("!document.querySelector('#setup-diff').hidden")
        await press(browser, OK)
        await browser.until("!document.querySelector('#setup').open")
        assert "zone: gate   # not the street" in (site.folder / "cameras.yaml").read_text()
        await press(browser, "document.querySelector('#device-masks')")
        await browser.until("document.querySelector('#masks').open")
        await browser.ask("evaluate", script="document.querySelector('#masks-drawing').focus()")
        for key in ("ArrowLeft", "Enter", "ArrowUp", "Enter", "ArrowLeft", "Enter", "Space"):
            await browser.ask("press", key=key)
        await press(browser, "document.querySelector('#setup-save-masks')")
        await browser.until("!document.querySelector('#masks').open")
        (gate, _) = yaml.safe_load((site.folder / "cameras.yaml").read_text())["spec"]["cameras"]
        before, drawn = (mask["points"] for mask in gate["masks"])
        assert before == [{"left": 0.1, "top": 0.1}, {"left": 0.2, "top": 0.1}, {"left": 0.2, "top": 0.3}]
        assert len(drawn) == 3
        await press(browser, "document.querySelector('#setup-edit')")
        await press(
            browser, "[...document.querySelectorAll('#setup button')].find((one) => one.innerText === 'Remove …')"
        )
        await browser.until(f"{OK}.innerText === 'Remove'")
        await press(browser, OK)
        await browser.until("!document.querySelector('#setup').open")
        assert "gate" not in (site.folder / "cameras.yaml").read_text()
        assert await browser.ask("problems") == []  # although no camera has sent a picture
