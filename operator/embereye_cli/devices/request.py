"""`embereye request frame|calibration|start DEVICE`: have a text device send something now.

Any shard of the fleet takes the request and passes it on to the one that owns the device.
"""

import asyncio
import os
from argparse import ArgumentParser, Namespace

import grpc

from embereye.process.grpc_server import channel
from embereye.process.lifecycle import UserError
from embereye.v1.ingest_pb2 import AskRequest, AskResponse
from embereye.v1.ingest_pb2_grpc import SensorsStub

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


def run(arguments: Namespace) -> int:
    """Ask; UserError with the reason where the device was not asked."""
    answer = asyncio.run(_ask(arguments.target, AskRequest(device=arguments.device, word=WORDS[arguments.what])))
    if not answer.asked:
        raise UserError(answer.reason)
    print(f"{arguments.device} was asked: {arguments.what}")
    return 0


async def _ask(target: str, request: AskRequest) -> AskResponse:
    async with channel(target) as link:
        try:
            return await SensorsStub(link).Ask(request, timeout=SECONDS)
        except grpc.aio.AioRpcError as error:
            reason = f"--target {target} does not answer as a sensor shard: {error.details()}"
            raise UserError(f"{reason}; name the gRPC port of the fleet, spec.listen.grpc") from error
