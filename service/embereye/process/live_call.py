"""The call by which a shard shows live pictures to people who look at its devices: `embereye.v1.Live/Show`.

The shard opens it when it starts, and sends its name. The hub answers with a roster of the devices that somebody looks
at, again with each change. The shard then sends coverage reports that contain only these devices and their newest
pictures. Both messages are those of the calls `Roster/Set` and `Evidence/Report`.

The roster names a device once for each set of encodings that the browsers in front of it play: `source` contains them,
such as "H264,H265". A status has in `picture` a JPEG, a fragment of MP4 or a thermal picture, in `state` the camera's
encoding, and in `analysed_ns` the time of capture. A status with a `reason` refuses to show the device.
"""

from typing import Any

import grpc

from embereye.v1.evidence_pb2 import Coverage
from embereye.v1.roster_pb2 import FleetRoster

SERVICE = "embereye.v1.Live"
CALL = f"{SERVICE}/Show"


def add_live(servicer: Any, server: Any) -> None:
    """Add `servicer.show`, which gets coverage reports and yields rosters, to `server`."""
    handler = grpc.stream_stream_rpc_method_handler(
        servicer.show, request_deserializer=Coverage.FromString, response_serializer=FleetRoster.SerializeToString
    )
    server.add_registered_method_handlers(SERVICE, {"Show": handler})


def open_live(channel: grpc.aio.Channel) -> "grpc.aio.StreamStreamCall[Coverage, FleetRoster]":
    """Begin the call on `channel`."""
    method: Any = channel.stream_stream(
        f"/{CALL}", request_serializer=Coverage.SerializeToString, response_deserializer=FleetRoster.FromString
    )
    call: grpc.aio.StreamStreamCall[Coverage, FleetRoster] = method()
    return call
