"""What the hub's links are held against, in processes of their own: pyzmq with the same messages."""

import sys

import zmq

from embereye.v1.alarms_pb2 import ZoneState
from embereye.v1.control_pb2 import ControlRequest, ControlResponse, State


def answer_commands(address: str, outputs: int, sensors: int) -> None:
    """Answer each command with a state, as the hub does: parsed, put in force, and written again. Until killed."""
    socket = zmq.Context().socket(zmq.REP)
    socket.bind(address)
    print(socket.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
    state = State(
        tick=100_000,
        time_ns=1 << 60,
        worst=ZoneState.ZONE_STATE_NORMAL,
        measured=[0.5] * outputs,
        sensors=[0.5] * sensors,
    )
    response = ControlResponse(state=state)
    while True:
        request = ControlRequest.FromString(socket.recv())
        response.state.sequence = request.command.sequence
        socket.send(response.SerializeToString())


def echo(address: str) -> None:
    """Send every message back to whom it came from. Until killed."""
    socket = zmq.Context().socket(zmq.ROUTER)
    socket.set_hwm(0)
    socket.bind(address)
    print(socket.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
    while True:
        socket.send_multipart(socket.recv_multipart(copy=False), copy=False)


if __name__ == "__main__":
    if sys.argv[1] == "commands":
        answer_commands(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        echo(sys.argv[2])
