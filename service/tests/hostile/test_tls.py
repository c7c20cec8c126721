"""Devices that use TLS, and impostors: real shards, real handshakes."""

import asyncio
import contextlib
import os
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from pathlib import Path

import grpc
import pytest
from google.protobuf import json_format
from harness.calls import await_refusal
from harness.eventually import eventually
from harness.servers.certificates import Pair, SiteAuthority
from harness.settings import camera_settings

from embereye.client.client import Client
from embereye.process.addresses import free_port, free_ports
from embereye.process.tls.client import ClientTls, dial
from embereye.process.tls.trust import trusting
from embereye.v1.ingest_pb2 import DeviceBatch, IngestRequest, IngestResponse, Reading
from embereye.v1.ingest_pb2_grpc import IngestStub
from embereye.v1.shard_pb2 import AccessRules, Assignment, ClientCertificates
from embereye.v1.types_pb2 import Device

from .site import CALM, HOST, SMOKE, Site, Speaker

BY_NAME = ClientCertificates(field=ClientCertificates.FIELD_COMMON_NAME, match="*", gateways=["gateway-1"])


class Devices:
    """A site whose shard has a certificate and requires devices' certificates."""

    def __init__(self, site: Site, folder: Path) -> None:
        self.site = site
        self.servers = SiteAuthority(folder / "servers", "servers")
        self.authority = SiteAuthority(folder / "devices", "devices")
        self.shown = self.servers.issue("hall", alternatives=["127.0.0.1", "localhost"])
        self.first = self.authority.issue("one")
        self.text_port = free_port()

    def start(self, rules: AccessRules | None = None, *, clients: bool = True) -> None:
        site = self.site
        if "hub" not in site.processes:
            site.start("hub")
        site.assign("shard-0", "one", "two", access=rules or AccessRules(certificates=BY_NAME))
        options = ["--tls", str(self.shown.folder), "--tls-port", str(self.text_port)]
        if clients:
            options += ["--client-ca", str(self.first.folder)]
        site.start("shard-0", *options)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.site.ports['shard-0'][0]}"

    def client(self, pair: Pair | None) -> ClientTls:
        return (pair or self.first).client(self.shown.ca, shown=pair is not None)

    async def send(self, tls: ClientTls | None, *devices: str) -> int:
        """Send readings; return the number of devices that were acknowledged."""
        return await await_refusal(lambda pause: self._send(pause, tls, *devices))

    async def _send(self, pause: float, tls: ClientTls | None, *devices: str) -> int:
        async with dial(self.address, tls, QUICK) as link:
            call = IngestStub(link).Stream(timeout=10)
            batches = [DeviceBatch(device=name, epoch=1, readings=[Reading(sequence=1)]) for name in devices]
            with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
                await asyncio.sleep(pause)
                await call.write(IngestRequest(devices=batches))
            response = await call.read()
            call.cancel()
            return len(response.ack.watermarks) if isinstance(response, IngestResponse) else 0

    async def refused(self, tls: ClientTls | None, *devices: str) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.send(tls, *devices)
        return caught.value.code(), caught.value.details() or ""

    async def up(self) -> None:
        async def answers() -> bool:
            with contextlib.suppress(grpc.aio.AioRpcError):
                return await self.send(self.client(self.first), "one") == 1
            return False

        await eventually(answers, goal="the shard acknowledges over TLS")

    def speaker(self, pair: Pair | None, name: str) -> Speaker:
        """Start a text device over TLS with the certificate `pair`."""
        speaker = Speaker(name, self.text_port, tls=self.client(pair))
        self.site.tasks.start(speaker.run(), name=f"device-{name}")
        return speaker


QUICK = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)]


@pytest.fixture
async def devices(site: Site, tmp_path: Path) -> AsyncIterator[Devices]:
    devices = Devices(site, tmp_path)
    yield devices
    log = site.log("shard-0")
    assert site.running("shard-0"), log
    assert "Traceback" not in log, log


async def test_only_a_devices_own_certificate_lets_it_speak(devices: Devices, tmp_path: Path) -> None:
    devices.start()
    await devices.up()
    assert await devices.send(devices.client(devices.authority.issue("gateway-1")), "one", "two") == 2
    code, sentence = await devices.refused(devices.client(devices.first), "two")
    assert (code, 'are for device "one", not for "two"' in sentence) == (grpc.StatusCode.PERMISSION_DENIED, True)

    stranger = SiteAuthority(tmp_path / "stranger", "devices").issue("one")
    expired = devices.authority.issue("one", folder="expired", life=timedelta(seconds=-1))
    early = devices.authority.issue("one", folder="early", begin=timedelta(hours=1))
    for pair in (None, stranger, expired, early):
        code, _ = await devices.refused(devices.client(pair), "one")
        assert code == grpc.StatusCode.UNAVAILABLE, pair
    code, _ = await devices.refused(None, "one")  # without TLS
    assert code == grpc.StatusCode.UNAVAILABLE


async def test_a_client_sends_nothing_to_a_shard_that_it_does_not_trust(devices: Devices, tmp_path: Path) -> None:
    devices.start()
    await devices.up()
    stranger = SiteAuthority(tmp_path / "stranger", "servers").issue("x")
    async with Client(devices.address, tls=devices.first.client(stranger.ca)) as client:
        client.send("one", smoke_adc=280)
        assert not await client.flush(1)
    other = ClientTls(devices.shown.ca, devices.first.folder / "tls.crt", devices.first.folder / "tls.key", "yard")
    async with Client(devices.address, tls=other) as client:
        client.send("one", smoke_adc=280)
        assert not await client.flush(1)
    async with Client(devices.address, tls=devices.client(devices.first)) as client:
        client.send("one", smoke_adc=280)
        assert await client.flush(30)


async def test_a_text_device_is_identified_by_its_certificate_and_alarms(devices: Devices) -> None:
    devices.start()
    speaker = devices.speaker(devices.first, "one")
    await devices.site.covered(["one"])
    speaker.line = SMOKE
    await devices.site.alarmed("one")


async def test_a_text_device_with_another_devices_certificate_is_refused(devices: Devices) -> None:
    devices.start()
    devices.speaker(devices.first, "two")
    devices.speaker(None, "two")
    Devices.speaker(devices, devices.authority.issue("two"), "one")
    plain = devices.site.speaker("shard-0", "two")  # and one without TLS
    await devices.up()
    reasons = (
        'its certificate is for device "one", but it sends as "two"',
        "cannot authenticate",
        "PEER_DID_NOT_RETURN_A_CERTIFICATE",
    )

    async def are_logged() -> bool:
        return all(reason in devices.site.log("shard-0") for reason in reasons)

    await eventually(are_logged, goal="all three are refused")
    plain.silent = True
    assert await devices.site.metric("shard-0", "embereye_sensor_tls_handshakes_failed_total") > 0

    async def unheard() -> bool:
        with contextlib.suppress(OSError):  # the hub may still be starting
            listed = (await devices.site.get("/v1/devices"))["devices"]
            return {device["id"]: device["reason"] for device in listed}.get("two") == "never heard"
        return False

    await eventually(unheard, goal="strangers' readings do not count")


async def test_garbage_plaintext_and_endless_hellos_harm_only_their_senders(devices: Devices) -> None:
    devices.start()
    honest = devices.speaker(devices.first, "one")
    await devices.site.covered(["one"])
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 200  # the beginning of a ClientHello
    attacks = [CALM * 20, b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 5000, hello, b"\x16\x03\x01\xff\xff" + b"A" * 65535]
    with contextlib.ExitStack() as stack:
        for attack in attacks:
            for port in (devices.text_port, devices.site.ports["shard-0"][0]):
                for _ in range(20):
                    connection = stack.enter_context(socket.create_connection((HOST, port)))
                    with contextlib.suppress(OSError):
                        connection.sendall(attack)
        slow = [stack.enter_context(socket.create_connection((HOST, devices.text_port))) for _ in range(50)]
        for byte in hello[:10]:
            for connection in slow:
                with contextlib.suppress(OSError):
                    connection.send(bytes([byte]))
            await asyncio.sleep(0.02)
        honest.line = SMOKE
        await devices.site.alarmed("one")
        await asyncio.sleep(10.5)
        for connection in slow:
            connection.settimeout(20)
            with contextlib.suppress(ConnectionError):
                assert connection.recv(100) == b"", "an endless handshake is aborted"


async def test_idle_connections_to_the_tls_port_lock_out_nobody(devices: Devices) -> None:
    devices.site.prefix = ["prlimit", "--nofile=1024:1024"]
    devices.start()
    honest = devices.speaker(devices.first, "one")
    await devices.site.covered(["one"])
    context = devices.client(devices.first).context()
    with contextlib.ExitStack() as stack:
        for number in range(1100):
            connection = stack.enter_context(socket.create_connection((HOST, devices.text_port)))
            if number % 4 == 0:  # some get as far as they can
                with contextlib.suppress(OSError, ssl.SSLError):
                    secured = context.wrap_socket(connection, server_hostname=HOST, do_handshake_on_connect=False)
                    secured.settimeout(0)
                    stack.enter_context(secured)
                    secured.do_handshake()
        newcomer = devices.speaker(devices.authority.issue("two"), "two")
        honest.line = newcomer.line = SMOKE
        await devices.site.alarmed("one")
        await devices.site.alarmed("two")
        assert await devices.send(devices.client(devices.first), "one") in {0, 1}


async def test_certificates_and_their_authority_change_under_open_connections(devices: Devices, tmp_path: Path) -> None:
    devices.start()
    speaker = devices.speaker(devices.first, "one")
    await devices.site.covered(["one"])
    opened = speaker.opened

    devices.servers.issue("hall", alternatives=["127.0.0.1", "renewed.example"])
    await eventually(_certificate_condition(devices, "renewed.example"), goal="the new certificate is shown")
    assert speaker.opened == opened, "open connections stay open"

    successor = SiteAuthority(tmp_path / "successor", "devices")
    two = successor.issue("two")
    assert (await devices.refused(devices.client(two), "two"))[0] == grpc.StatusCode.UNAVAILABLE
    (devices.first.folder / "ca.crt").write_bytes(successor.certificate)

    async def admitted() -> bool:
        with contextlib.suppress(grpc.aio.AioRpcError):
            return await devices.send(devices.client(two), "two") == 1
        return False

    await eventually(admitted, goal="the successor's certificates are accepted")
    assert (await devices.refused(devices.client(devices.first), "one"))[0] == grpc.StatusCode.UNAVAILABLE
    devices.speaker(two, "two")
    await devices.site.covered(["two"])  # and the connection opened with the previous authority is closed


def _certificate_condition(devices: Devices, name: str) -> Callable[[], object]:
    context = trusting(devices.shown.ca)
    context.load_cert_chain(devices.first.folder / "tls.crt", devices.first.folder / "tls.key")

    async def has_name() -> bool:
        _, writer = await asyncio.open_connection(HOST, devices.text_port, ssl=context)
        certificate = writer.get_extra_info("peercert")
        writer.transport.abort()
        return ("DNS", name) in certificate["subjectAltName"]

    return has_name


async def test_an_expired_certificate_ends_the_connection_that_it_opened(devices: Devices) -> None:
    devices.start()
    await devices.up()
    brief = devices.authority.issue("two", life=timedelta(seconds=8))
    context = devices.client(brief).context()
    reader, writer = await asyncio.open_connection(HOST, devices.text_port, ssl=context, server_hostname=HOST)
    assert await reader.readexactly(9) == b"PERIOD_ON"

    async def talk() -> None:
        with contextlib.suppress(OSError):
            while True:
                writer.write(b"#serialno:two!" + CALM)
                await asyncio.sleep(0.2)

    devices.site.tasks.start(talk(), name="brief")
    with contextlib.suppress(ConnectionError):
        assert await asyncio.wait_for(reader.read(), 40) == b""


async def test_a_camera_pushes_over_tls_only_with_its_own_certificate(site: Site, tmp_path: Path) -> None:
    site.start("hub")
    servers, devices = SiteAuthority(tmp_path / "s", "servers"), SiteAuthority(tmp_path / "d", "devices")
    shown, camera_pair = servers.issue("yard", alternatives=["127.0.0.1"]), devices.issue("camera-1")
    settings = camera_settings()
    settings.access.CopyFrom(AccessRules(certificates=BY_NAME))
    cameras = [
        Device(id=f"camera-{number}", zone="yard", source="push://", fps_target=5, fps_min=1) for number in (1, 2)
    ]
    assignment = Assignment(
        fleet="default/cameras/yard", shard="yard-cameras-0", epoch=1, devices=cameras, camera=settings
    )
    (tmp_path / "yard.json").write_text(json_format.MessageToJson(assignment))
    port, control, metrics = map(str, free_ports(3))

    def start(*arguments: str) -> None:
        name = arguments[0]
        with (tmp_path / f"{name}.log").open("ab") as log:
            command = [sys.executable, "-m", "embereye_cli", *arguments]
            site.processes[name] = subprocess.Popen(command, stderr=log, env={**os.environ, "GRPC_VERBOSITY": "NONE"})

    start(
        "shard", "camera", "--shard", "yard-cameras-0", "--assignment", str(tmp_path / "yard.json"), "--host", HOST,
        "--hub", site.control, "--grpc-port", port, "--control-port", control, "--metrics-port", metrics,
        "--tls", str(shown.folder), "--client-ca", str(camera_pair.folder),
    )  # fmt: skip
    start(
        "simulate", "cameras", "--push", f"{HOST}:{port}", "--count", "2", "--fps", "5", "--tls", "--ca", str(shown.ca),
        "--cert", str(camera_pair.folder / "tls.crt"), "--key", str(camera_pair.folder / "tls.key"),
    )  # fmt: skip
    await site.covered(["camera-1"], 60)

    async def refused() -> bool:
        return 'its credentials allow only "camera-1"' in site.log("simulate")

    await eventually(refused, goal="the sender of camera-2 gets the reason of the refusal")


async def test_a_shard_names_its_unreadable_certificate(devices: Devices) -> None:
    devices.start()
    await devices.up()
    (devices.shown.folder / "tls.crt").write_text("no certificate")
    reason = f"{devices.shown.folder}: tls.crt and tls.key do not belong together"

    async def is_logged() -> bool:
        return reason in devices.site.log("shard-0")

    await eventually(is_logged, goal="the shard names it")
    await devices.up()  # it still uses the previous one
    assert devices.site.end("shard-0") == 0
    devices.site.start("shard-0", "--tls", str(devices.shown.folder))
    assert devices.site.processes["shard-0"].wait(60) == 2
    assert f"TLS cannot be served: {devices.shown.folder}" in devices.site.log("shard-0")
    devices.shown = devices.servers.issue("hall", alternatives=["127.0.0.1"])
    devices.start()
    await devices.up()


async def test_a_second_address_claiming_an_id_is_refused_and_named(site: Site) -> None:
    site.start("hub")
    site.assign("shard-0", "one", access=AccessRules(networks=["10.0.0.0/8"]))  # and this machine itself
    site.start("shard-0")
    honest = site.speaker("shard-0", "one")
    await site.covered(["one"])
    thief = Speaker("one", site.ports["shard-0"][1], line=SMOKE, source="127.0.0.7")
    site.tasks.start(thief.run(), name="thief")

    async def named() -> bool:
        (device,) = (await site.get("/v1/devices"))["devices"]
        return "127.0.0.7 also sends as this device and is refused" in device["state"]

    await eventually(named, goal="the second address is named")
    assert "refused 127.0.0.7, which sends as this device while 127.0.0.1 does" in site.log("shard-0")
    assert not await site.alarms("one"), "its readings were accepted"
    (device,) = (await site.get("/v1/devices"))["devices"]
    assert int(device["ledger"]["rejected"]["another address speaks for it"]) > 0
    honest.silent = True  # once the device is silent, it may have moved
    await site.alarmed("one")


async def test_a_tls_port_without_tls_options_is_refused_with_a_sentence(site: Site) -> None:
    site.start("hub")
    site.assign("shard-0", "one")
    site.start("shard-0", "--tls-port", str(free_port()))
    assert site.processes["shard-0"].wait(60) == 2
    assert "--tls-port needs --tls" in site.log("shard-0")
