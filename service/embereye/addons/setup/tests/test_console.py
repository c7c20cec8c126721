"""Devices are added, changed and removed in a real Chromium."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiomqtt
import pytest
import yaml
from harness.browser import Browser, run_browser
from harness.need import BROWSER, MOSQUITTO
from harness.servers.mosquitto import PASSWORD, Mosquitto

from embereye.camera.discovery import addresses
from embereye.process.lifecycle import UserError
from embereye.process.tasks import beside
from embereye.sim.cameras.onvif import OnvifCameras, serve_onvif
from embereye.wire.onvif.media import Profile

from .conftest import CAMERAS, SENSORS, TOKEN, Site, Start

pytestmark = pytest.mark.needs(BROWSER)
ADD = "document.querySelector('#setup-adders button')"
OK = "document.querySelector('#setup-ok')"
SOURCE = "document.querySelector('#setup-source').parentElement"
BROKER = """(([host, port, tls, login]) => [host.value, port.value, tls.checked, login.value])(
  ["broker", "port", "tls", "credentials"].map((name) => document.querySelector(`#setup-${name}`))
)"""
IN_SIGHT = """(([diff, ok]) => diff.top >= 0 && diff.bottom <= ok.top && ok.bottom <= innerHeight)(
  ["diff", "ok"].map((name) => document.querySelector(`#setup-${name}`).getBoundingClientRect())
)"""
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
        assert await browser.ask("evaluate", script=IN_SIGHT), "the button that writes, and the difference above it"
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


async def test_a_camera_that_answers_in_the_network_is_chosen(start: Start) -> None:
    try:
        host = next(iter(addresses([]).values()))
    except UserError as error:
        pytest.skip(str(error))
    profile = Profile("m", "main", "H264", 640, 480, 15, 0, "v")
    served = OnvifCameras({"gate": [(profile, f"rtsp://{host}:9/1")]})
    stop, bound = asyncio.Event(), asyncio.get_running_loop().create_future()
    cameras = beside(serve_onvif(served, host, 0, stop, bound.set_result), name="onvif")
    async with cameras, start("cameras.yaml") as site, signed_in(site) as browser:
        source = f"onvif://{host}:{await bound}/gate"
        await browser.ask("goto", url=f"{site.base}/#devices")
        await browser.until(f"{ADD} && !document.querySelector('#setup-adders').hidden")
        await press(browser, ADD)
        buttons = "[...document.querySelectorAll('#setup button')]"
        await press(browser, f"{buttons}.find((one) => one.innerText === 'Search the network')")
        gate = f"{buttons}.find((one) => one.innerText.includes('{source}'))"
        await browser.ask("until", script=gate, seconds=85)
        await press(browser, gate)
        assert await browser.ask("evaluate", script="document.querySelector('#setup-address').value") == source
        assert await browser.ask("evaluate", script="document.querySelector('#setup-id').value") == "gate"


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


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker that asks for a password."""
    MOSQUITTO.require()
    broker = Mosquitto(tmp_path / "mosquitto", users=("ember",))
    broker.start()
    yield broker
    broker.stop()


async def keep_publishing(broker: Mosquitto) -> None:
    """Publish as a detector does, until cancelled."""
    async with aiomqtt.Client("127.0.0.1", broker.port, username="ember", password=PASSWORD) as client:
        while True:
            await client.publish("zigbee2mqtt/kitchen", '{"smoke": false, "temperature": 21.5}')
            await asyncio.sleep(0.2)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.needs(MOSQUITTO)
async def test_a_detector_at_a_broker_with_a_password_is_read_and_added(
    start: Start, mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEREYE_CREDENTIALS", str(tmp_path / "logins"))
    publishing = beside(keep_publishing(mosquitto), name="publish")
    async with start("sensors.yaml") as site, signed_in(site) as browser, publishing:
        await browser.ask("goto", url=f"{site.base}/#devices")
        await browser.until(f"{ADD} && !document.querySelector('#setup-adders').hidden")
        await press(browser, f"{ADD}.nextElementSibling")
        await browser.until("document.querySelector('#setup').open")
        await browser.ask("select", selector="#setup-sensor", value="mqtt")
        wanted = {
            "id": "kitchen", "zone": "kitchen", "source": "mqtt:zigbee2mqtt/kitchen", "broker": "127.0.0.1",
            "port": str(mosquitto.port), "user": "ember", "password": "wrong",
        }  # fmt: skip
        for name, text in wanted.items():
            await browser.ask("fill", selector=f"#setup-{name}", text=text)
        newest = "document.querySelector('#setup-newest').innerText"
        await press(browser, "document.querySelector('#setup-read')")
        await browser.ask("until", script=f"{newest}.toLowerCase().includes('not authori')", seconds=85)
        await browser.ask("fill", selector="#setup-password", text=PASSWORD)
        await press(browser, "document.querySelector('#setup-read')")
        await browser.ask("until", script=f"{newest}.includes('temperature 21.5 °C')", seconds=85)
        assert not (tmp_path / "logins").exists()
        await press(browser, OK)
        await browser.until(
            "document.querySelector('#setup-diff').innerText.includes('credentialsRef: {name: hall-broker}')"
        )
        assert PASSWORD not in await browser.text("#setup-diff")
        assert await browser.ask("axe") == []
        await press(browser, OK)
        await browser.until("!document.querySelector('#setup').open")
        spec = yaml.safe_load((site.folder / "sensors.yaml").read_text())["spec"]
        assert spec["mqtt"] == {
            "broker": f"mqtt://127.0.0.1:{mosquitto.port}", "credentialsRef": {"name": "hall-broker"},
        }  # fmt: skip
        assert spec["sensors"][1] == {
            "id": "kitchen", "zone": "kitchen", "source": "mqtt:zigbee2mqtt/kitchen", "template": "zigbee2mqtt",
        }  # fmt: skip
        assert (tmp_path / "logins" / "hall-broker" / "password").read_text() == PASSWORD
        await browser.until("!document.querySelector('#setup-undo').hidden")
        await press(browser, f"{ADD}.nextElementSibling")  # a second one at the same broker
        await browser.ask("select", selector="#setup-sensor", value="mqtt")
        assert await browser.ask("evaluate", script=BROKER) == ["127.0.0.1", str(mosquitto.port), False, "hall-broker"]
        await browser.ask("click", selector="#setup-tls")
        await browser.ask("fill", selector="#setup-id", text="loft")
        await browser.ask("fill", selector="#setup-zone", text="loft")
        await press(browser, OK)
        await browser.until("document.querySelector('#setup-diff').innerText.includes('broker: mqtts://127.0.0.1:')")
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
