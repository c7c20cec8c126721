"""What a decoder process does: turn compressed frames into small pictures, and now and then into a still for people.

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
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
import numpy.typing as npt
import simplejpeg

from embereye.detect.vision.working import reduction, shrunk, to_working_size
from embereye.units import Box
from embereye.wire.jpeg.header import EOI

Picture = npt.NDArray[np.uint8]

STILL_SIDE = 320  # pixels of the long side of a still, at most
STILL_LEAST = 240  # … and at least, of a larger picture: 1080p is reduced to it for detection, and need not be twice
STILL_BYTES = 20_000  # at most
EXIF_REACH = 64  # bytes in which a picture that may have to be turned says so: behind JFIF's segment, if there is one
HANG_SECONDS = 5.0  # for one frame; the slowest honest one takes a tenth of that
_REDUCED = {
    1: cv2.IMREAD_COLOR,
    2: cv2.IMREAD_REDUCED_COLOR_2,
    4: cv2.IMREAD_REDUCED_COLOR_4,
    8: cv2.IMREAD_REDUCED_COLOR_8,
}

# Frames and pictures lie in memory that is shared; what goes over the socket says where.
SLOTS = 8  # of each decoder: frames that it has been given
FRAME_BYTES = 8 * 1024 * 1024  # of a compressed frame
PICTURE_BYTES = 256 * 1024  # of a picture of the working size, and its still
SLOT_BYTES = FRAME_BYTES + PICTURE_BYTES  # of address space: what is not used takes no memory
MARK = SLOTS * SLOT_BYTES  # where a decoder notes which slot it is at, so that it is known which frame it died of
AT_NONE = 255
SHARE_BYTES = MARK + mmap.PAGESIZE  # of each decoder
ORDER = struct.Struct("=BBB?IHH")  # slot, scale, boxes, whether to make a still, bytes, width, height; then boxes
BOX = struct.Struct("=4f")
# Slot, whether it is decoded, rows, columns, bytes of the still, when it began and ended, CPU seconds, bytes of why.
REPLY = struct.Struct("=B?HHIdddH")
REASON = 200  # bytes, at most
READY = b"ready"  # a decoder's first word
MESSAGE = 4096  # bytes of orders, or of replies, at most
REPLY_SECONDS = 0.002  # that a reply may wait for the next ones: to be woken for each costs the other side more


class UndecodableError(Exception):
    """A frame that passed the header check and cannot be decoded all the same."""


@dataclass(frozen=True)
class Order:
    """How a frame is to be decoded."""

    scale: int  # 1, 2, 4 or 8: by which the picture is reduced
    still: Sequence[Box] | None = None  # what a still is to put a frame around; None: no still is wanted


@dataclass(frozen=True)
class Decoded:
    """One frame, decoded."""

    picture: Picture  # BGR, of the working size
    still: bytes  # JPEG; empty: no new one
    cpu_seconds: float


def carry_out(
    order: Order, data: bytes | memoryview, width: int, height: int, into: memoryview | None = None
) -> Decoded:
    """Decode the frame `data` of `width` x `height` pixels; UndecodableError where that cannot be.

    The picture is put `into` memory where that is simple: if it has its size there, it lies there.
    """
    began = time.thread_time()
    try:
        picture = decode(data, order.scale, (width, height), into)
        still = b""
        if order.still is not None:
            scale = reduction(width, height, STILL_LEAST)
            shown = picture if scale == order.scale else decode(data, scale, (width, height))
            still = make_still(shown, order.still)
        picture = to_working_size(picture)
    except cv2.error as error:
        raise UndecodableError(str(error)) from error
    return Decoded(picture, still, time.thread_time() - began)


def decode(
    data: bytes | memoryview, scale: int, size: tuple[int, int] | None = None, into: memoryview | None = None
) -> Picture:
    """`data` as BGR, reduced by `scale` (1, 2, 4 or 8); UndecodableError where that cannot be.

    Where its header's `size` (width, height) is known, a thin layer over the library that OpenCV uses as well makes the
    same picture in a tenth less time, `into` memory that is large enough. What is cut short, turned or of unusual
    colours is OpenCV's.
    """
    if size and data[-2:] == EOI and b"Exif" not in bytes(data[:EXIF_REACH]):
        width, height = (-(-side // scale) for side in size)
        if into and len(into) < 3 * width * height:
            into = None
        with contextlib.suppress(ValueError):
            return simplejpeg.decode_jpeg(  # type: ignore[no-any-return]
                data, "BGR", min_height=height, min_width=width, strict=False, buffer=into
            )
    picture = cv2.imdecode(np.frombuffer(data, np.uint8), _REDUCED[scale])
    if picture is None:
        raise UndecodableError("the decoder refused it")
    return picture  # type: ignore[return-value]


def make_still(picture: Picture, boxes: Sequence[Box]) -> bytes:
    """A small JPEG, for people, of a `picture` (BGR), which stays as it is; each of `boxes` is marked in it."""
    picture = shrunk(picture, STILL_SIDE) if max(picture.shape[:2]) > STILL_SIDE else picture.copy()
    height, width = picture.shape[:2]
    for x, y, w, h in boxes:
        corners = (int(x * width), int(y * height)), (int((x + w) * width), int((y + h) * height))
        cv2.rectangle(picture, *corners, (0, 0, 255), 1)
    for quality in (75, 55, 35, 15):
        data = cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        if len(data) <= STILL_BYTES:
            return data
    return b""


def serve(orders: socket.socket, memory: memoryview) -> None:
    """Decode what `orders` tells of `memory` until its other end is closed."""
    with contextlib.suppress(ConnectionError):
        orders.send(READY)
        while message := orders.recv(MESSAGE):
            replies, since, at = b"", time.monotonic(), 0
            while at < len(message):
                # The alarm ends this process: there is no other way out of a C library.
                memory[MARK] = message[at]
                signal.setitimer(signal.ITIMER_REAL, HANG_SECONDS)
                reply, at = _answer(message, at, memory)
                signal.setitimer(signal.ITIMER_REAL, 0)
                replies += reply
                if at < len(message) and time.monotonic() - since > REPLY_SECONDS:
                    orders.send(replies)
                    replies, since = b"", time.monotonic()
            memory[MARK] = AT_NONE
            orders.send(replies)


def _answer(message: bytes, at: int, memory: memoryview) -> tuple[bytes, int]:
    """The reply to the order that begins at byte `at`, and where the next one begins."""
    slot, scale, count, still_wanted, size, width, height = ORDER.unpack_from(message, at)
    at += ORDER.size
    boxes = [BOX.unpack_from(message, at + number * BOX.size) for number in range(count)]
    at += count * BOX.size
    begin, began = slot * SLOT_BYTES, time.monotonic()
    try:
        order, place = Order(scale, boxes if still_wanted else None), begin + FRAME_BYTES
        room = memory[place : place + PICTURE_BYTES - STILL_BYTES]
        done = carry_out(order, memory[begin : begin + size], width, height, room)
    except UndecodableError as error:
        why = str(error).encode()[:REASON]
        return REPLY.pack(slot, False, 0, 0, 0, began, time.monotonic(), 0.0, len(why)) + why, at
    rows, columns = done.picture.shape[:2]
    picture = picture_of(memory, slot, rows, columns)
    if not np.may_share_memory(picture, done.picture):
        picture[:] = done.picture
    place = begin + FRAME_BYTES + done.picture.size
    memory[place : place + len(done.still)] = done.still
    return REPLY.pack(slot, True, rows, columns, len(done.still), began, time.monotonic(), done.cpu_seconds, 0), at


def picture_of(memory: memoryview, slot: int, rows: int, columns: int) -> Picture:
    """The picture (BGR) in `slot`, where it lies."""
    return np.ndarray((rows, columns, 3), np.uint8, memory, slot * SLOT_BYTES + FRAME_BYTES)


def still_of(memory: memoryview, slot: int, rows: int, columns: int, size: int) -> bytes:
    """The still in `slot`, behind its picture."""
    place = slot * SLOT_BYTES + FRAME_BYTES + 3 * rows * columns
    return bytes(memory[place : place + size])


def fork_decoders(control: socket.socket, memory: mmap.mmap) -> None:
    """Fork a decoder for every socket that comes over `control`, until its other end is closed."""
    while True:
        message, sockets, _, _ = socket.recv_fds(control, 8, 1)
        if not message:
            return
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            first = message[0] * SHARE_BYTES
            serve(socket.socket(fileno=sockets[0]), memoryview(memory)[first : first + SHARE_BYTES])
            os._exit(0)
        os.close(sockets[0])


def main() -> None:
    """`python -m embereye.camera.decode.process CONTROL MEMORY`: the two are file descriptors."""
    # Whoever started this one ends it by closing its sockets; a terminal's Ctrl-C goes to all of them at once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the dead
    cv2.setNumThreads(1)
    picture = cv2.imencode(".jpg", np.zeros((16, 16, 3), np.uint8))[1].tobytes()
    decode(picture, 1, (16, 16))  # loads what is loaded on first use
    gc.collect()
    gc.freeze()
    gc.disable()  # nothing here makes cycles, and pages that are not written to stay shared
    control, descriptor = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    fork_decoders(control, mmap.mmap(descriptor, os.fstat(descriptor).st_size))


if __name__ == "__main__":
    main()
