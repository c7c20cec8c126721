"""`embereye request frame|calibration|start DEVICE`: have a text device send something now.

Any shard of the fleet takes the request and passes it on to the one that owns the device.
"""

import asyncio
import os
from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from functools import partial

import grpc

from embereye.process.lifecycle import UserError
from embereye.process.tls.client import dial
from embereye.v1.ingest_pb2 import AskRequest, AskResponse
from embereye.v1.ingest_pb2_grpc import SensorsStub
from embereye_cli.hub.token import add_device_token_option, device_token
from embereye_cli.simulate.tls_options import add_tls_options, tls_options

SECONDS = 5.0  # for the answer
WORDS = {
    "frame": AskRequest.WORD_FRAME,
    "calibration": AskRequest.WORD_CALIBRATION,
    "start": AskRequest.WORD_START,
}


def add_arguments(parser: ArgumentParser) -> None:
    """Declare the command's options."""
    target = os.environ.get("EMBEREYE_SENSORS", "127.0.0.1:50051")
    parser.add_argument("what", choices=WORDS, help="one thermal frame, the calibration, or to stream continuously")
    parser.add_argument("device", metavar="DEVICE", help="the device's id, as its fleet declares it")
    sentence = "gRPC of the fleet's service or of any shard (%(default)s) [EMBEREYE_SENSORS]"
    parser.add_argument("--target", default=target, metavar="HOST:PORT", help=sentence)
    add_device_token_option(parser)
    add_tls_options(parser)


def run(arguments: Namespace) -> int:
    """Ask; UserError with the reason where the device was not asked."""
    link = partial(dial, arguments.target, tls_options(arguments), token=device_token(arguments.token))
    request = AskRequest(device=arguments.device, word=WORDS[arguments.what])
    answer = asyncio.run(_ask(arguments.target, link, request))
    if not answer.asked:
        raise UserError(answer.reason)
    print(f"{arguments.device} was asked: {arguments.what}")
    return 0


async def _ask(target: str, dial_shard: Callable[[], grpc.aio.Channel], request: AskRequest) -> AskResponse:
    async with dial_shard() as link:
        try:
            return await SensorsStub(link).Ask(request, timeout=SECONDS)
        except grpc.aio.AioRpcError as error:
            if error.code() in {grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED}:
                raise UserError(error.details() or "the shard refuses") from error
            reason = f"--target {target} does not answer as a sensor shard: {error.details()}"
            raise UserError(f"{reason}; name the gRPC port of the fleet, spec.listen.grpc") from error
