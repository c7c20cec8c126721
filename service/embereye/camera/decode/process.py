"""A decoder process: turns compressed frames into small images, and now and then into a still for people.

Decoding takes most of a camera shard's time and is where hostile bytes meet a large C library. It has processes of its
own: they do not wait for the interpreter that everything else shares, and one that crashes or hangs on a frame takes
nothing else with it. They are forked by a process that has loaded no more than OpenCV, so that another one costs a few
megabytes and a few milliseconds.
"""

import contextlib
import gc
import mmap
import os
import signal
import socket
import sys
import time

import cv2
import numpy as np

from embereye.camera.decode.exchange import (
    AT_NONE,
    BOX,
    FRAME_BYTES,
    HANG_SECONDS,
    IMAGE_BYTES,
    LOGIT,
    MARK,
    MESSAGE_BYTES,
    ORDER,
    READY,
    REASON_BYTES,
    REPLY,
    SHARE_BYTES,
    SLOT_BYTES,
    image_in,
)
from embereye.camera.decode.image import STILL_BYTES, DecodeOrder, UndecodableError, decode, decode_frame
from embereye.camera.decode.shipped import load_network
from embereye.detect.vision.appearance import AppearanceNetwork

REPLY_SECONDS = 0.002  # that a reply may wait for the next ones: waking the other side for each costs it more


def serve(orders: socket.socket, memory: memoryview, network: AppearanceNetwork | None = None) -> None:
    """Decode what `orders` names in `memory` until the other end of the socket is closed."""
    with contextlib.suppress(ConnectionError):
        orders.send(READY)
        while message := orders.recv(MESSAGE_BYTES):
            replies, since, at = b"", time.monotonic(), 0
            while at < len(message):
                # The alarm ends this process: there is no other way out of a C library.
                memory[MARK] = message[at]
                signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
                reply, at = _answer(message, at, memory, network)
                signal.setitimer(signal.ITIMER_REAL, 0)
                replies += reply
                if at < len(message) and time.monotonic() - since > REPLY_SECONDS:
                    orders.send(replies)
                    replies, since = b"", time.monotonic()
            memory[MARK] = AT_NONE
            orders.send(replies)


def _answer(message: bytes, at: int, memory: memoryview, network: AppearanceNetwork | None) -> tuple[bytes, int]:
    """The reply to the order that begins at byte `at`, and where the next order begins."""
    slot, scale, count, still_wanted, look_wanted, close, size, width, height = ORDER.unpack_from(message, at)
    at += ORDER.size
    boxes = [BOX.unpack_from(message, at + number * BOX.size) for number in range(count + close)]
    at += (count + close) * BOX.size
    begin, began = slot * SLOT_BYTES, time.monotonic()
    try:
        order = DecodeOrder(scale, boxes[:count] if still_wanted else None, boxes[count:] if look_wanted else None)
        place = begin + FRAME_BYTES
        room = memory[place : place + IMAGE_BYTES - STILL_BYTES]
        decoded = decode_frame(order, memory[begin : begin + size], width, height, room, network)
    except UndecodableError as error:
        why = str(error).encode()[:REASON_BYTES]
        return REPLY.pack(slot, False, 0, 0, 0, began, time.monotonic(), 0.0, len(why)) + why, at
    rows, columns = decoded.image.shape[:2]
    image = image_in(memory, slot, rows, columns)
    if not np.may_share_memory(image, decoded.image):
        image[:] = decoded.image
    place = begin + FRAME_BYTES + decoded.image.size
    memory[place : place + len(decoded.still)] = decoded.still
    ended, cpu_seconds = time.monotonic(), decoded.cpu_seconds
    logits = b"".join(LOGIT.pack(logit) for logit in decoded.logits)
    reply = REPLY.pack(slot, True, rows, columns, len(decoded.still), began, ended, cpu_seconds, len(logits))
    return reply + logits, at


def fork_decoders(control: socket.socket, memory: mmap.mmap, network: AppearanceNetwork) -> None:
    """Fork a decoder for every socket that comes over `control`, until its other end is closed."""
    while True:
        message, sockets, _, _ = socket.recv_fds(control, 8, 1)
        if not message:
            return
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            first = message[0] * SHARE_BYTES
            serve(socket.socket(fileno=sockets[0]), memoryview(memory)[first : first + SHARE_BYTES], network)
            os._exit(0)
        os.close(sockets[0])


def main() -> None:
    """`python -m embereye.camera.decode.process CONTROL MEMORY`: the two are file descriptors."""
    # The shard ends this process by closing its sockets; a terminal's Ctrl-C goes to all processes at once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for decoders that have ended
    cv2.setNumThreads(1)
    frame = cv2.imencode(".jpg", np.zeros((16, 16, 3), np.uint8))[1].tobytes()
    decode(frame, 1, (16, 16))  # loads what is loaded on first use
    network = load_network()
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing here makes reference cycles, and pages that are not written to stay shared
    control, descriptor = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    fork_decoders(control, mmap.mmap(descriptor, os.fstat(descriptor).st_size), network)


if __name__ == "__main__":
    main()
