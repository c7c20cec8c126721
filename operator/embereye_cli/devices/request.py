"""Request a frame or the calibration from a sensor, or start its stream.

Every shard of the fleet accepts the request and forwards it to the shard that owns the device.
"""

import asyncio
import contextlib
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import grpc

from embereye.process.lifecycle import CheckFailedError, NotFoundError, RefusedError, UnreachableError, UserError
from embereye.process.tls.client import dial
from embereye.v1.ingest_pb2 import AskRequest, AskResponse
from embereye.v1.ingest_pb2_grpc import SensorsStub
from embereye_cli.explain.device import known_devices
from embereye_cli.hub.connection import console_connection
from embereye_cli.hub.errors import unreachable
from embereye_cli.hub.http import HttpHub
from embereye_cli.hub.token import add_device_token_option, device_token
from embereye_cli.options import Option
from embereye_cli.parser import did_you_mean
from embereye_cli.simulate.tls_options import add_tls_options, tls_options
from embereye_cli.terminal import print_answer

SECONDS = 5.0  # to wait for the answer
WORDS = {
    "frame": AskRequest.WORD_FRAME,
    "calibration": AskRequest.WORD_CALIBRATION,
    "start": AskRequest.WORD_START,
}


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    parser.add_argument("wanted", choices=WORDS, metavar="frame|calibration|start",
                        help="one thermal frame, the calibration, or a continuous stream")  # fmt: skip
    parser.add_argument("device", metavar="DEVICE", help="the device's id, as its fleet declares it")
    Option("--target", "gRPC address of the fleet or of one of its shards (%(default)s)", default="127.0.0.1:50051",
           metavar="HOST:PORT", variable="SENSORS").add_to(parser)  # fmt: skip
    parser.add_argument("--data", type=Path, default=None, metavar="DIR",
                        help="data folder of the `embereye up` whose hub knows the devices; default: .embereye in this "
                        "folder, then /var/lib/embereye")  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    add_device_token_option(parser)
    add_tls_options(parser)


def run(arguments: Namespace) -> int:
    """Send the request; UserError with the reason if the device does not get it."""
    link = partial(dial, arguments.target, tls_options(arguments), token=device_token(arguments.token))
    request = AskRequest(device=arguments.device, word=WORDS[arguments.wanted])
    answer = asyncio.run(_ask(arguments.target, link, request))
    if not answer.asked:
        raise _refusal(arguments, answer.reason)
    document = {"device": arguments.device, "requested": arguments.wanted}
    print_answer(document, [f"{arguments.device}: {arguments.wanted} requested"], as_json=arguments.json)
    return 0


async def _ask(target: str, dial_shard: Callable[[], grpc.aio.Channel], request: AskRequest) -> AskResponse:
    async with dial_shard() as link:
        try:
            return await SensorsStub(link).Ask(request, timeout=SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}:
                raise RefusedError(error.details() or "the shard refuses") from error
            sentence = unreachable(target, error.details() or error.code().name, peer="sensor shard")
            raise UnreachableError(
                sentence, "--target is the gRPC address of a sensor fleet: spec.listen.grpc."
            ) from error


def _refusal(arguments: Namespace, reason: str) -> UserError:
    """The error for the shard's `reason`; the hub knows if the device exists under another name or is a camera."""
    devices: dict[str, str] = {}
    with contextlib.suppress(UserError):
        at_hub = Namespace(console="", token="", data=arguments.data)
        devices = {entry["id"]: entry["fleet"] for entry in known_devices(HttpHub(console_connection(at_hub)))}
    return explain_refusal(arguments.device, reason, devices)


def explain_refusal(device: str, reason: str, fleets: dict[str, str]) -> UserError:
    """The error for a request that a shard refused for `reason`; `fleets` has the fleet of each device."""
    if "/cameras/" in fleets.get(device, ""):
        return RefusedError(
            f"{device} is a camera: only sensors answer requests. `embereye alarms clips` has pictures."
        )
    if "not declared" not in reason:
        return CheckFailedError(reason)
    return NotFoundError(f"{reason}.{did_you_mean(device, _sensors(fleets))}")


def _sensors(fleets: dict[str, str]) -> Iterable[str]:
    return (device for device, fleet in fleets.items() if "/sensors/" in fleet)
