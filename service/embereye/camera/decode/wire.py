"""The exchange between the pool and its decoder processes: images in shared memory, orders and replies by socket."""

import mmap
import struct

import numpy as np

from embereye.camera.decode.image import DecodedImage
from embereye.detect.vision.working import WORKING_SIDE

# Limits in CPU time end an endless loop soon, but spare a process that waits because the machine is suspended or busy.
FRAME_SECONDS = 5.0  # CPU time for one frame; the slowest valid frame takes a tenth of that
UNIT_SECONDS = 0.7  # CPU time for one access unit of a video; the slowest valid unit takes a tenth of that
HANG_SECONDS = 30.0  # wall time for one frame; a decoder that waits longer hangs
SLOTS = 24  # frames in one decoder's memory at a time
FRAME_BYTES = 8 * 1024 * 1024  # of a compressed frame, at most
IMAGE_BYTES = 1024 * 1024  # of an image of the working size, its still, a picture for the model, and a detail
PICTURE_BYTES = 512 * 1024  # of a picture for the model, at most
DETAIL_BYTES = 3 * WORKING_SIDE**2 * 2  # of a detail, at most: slightly more than an image of the working size
SLOT_BYTES = FRAME_BYTES + IMAGE_BYTES  # of address space; untouched pages use no memory
# offset of the byte with the slot in work; if the decoder crashes, it names the frame to blame
MARK = SLOTS * SLOT_BYTES
AT_NONE = 255  # value of that byte while the decoder is idle
SHARE_BYTES = MARK + mmap.PAGESIZE  # shared memory of one decoder
# Slot, scale, boxes, still wanted, appearance network wanted, close-ups, bytes, width, height. For a video also:
# encoding, stream, access units, side of the picture for the model, first unit is a key frame, smooth block edges,
# image wanted, detail wanted. The boxes, the close-ups, the detail's box and the access units follow.
ORDER = struct.Struct("=BBB??BIHHBIHH????")
BOX = struct.Struct("=4f")
UNIT = struct.Struct("=II")  # bytes, number
ENCODINGS = ("", "H264", "H265")  # "": a single picture, not a video
FORGET = 255  # in place of an order's slot: drop the stream's context
# Slot, outcome, rows, columns, bytes of the still, start and end time, CPU seconds, bytes of the text that follows. For
# a video also: number of the unit shown, bytes of the picture for the model. Then rows and columns of the detail, or 0.
# The reason of a failure or the appearance network's logits follow.
REPLY = struct.Struct("=BBHHIdddHIIHH")
LOGIT = struct.Struct("=f")
FAILED, DECODED, DELAYED, TRUNCATED = 0, 1, 2, 3  # outcomes; DELAYED: the decoder shows the picture later
REASON_BYTES = 200  # of a failure's reason, at most
READY = b"ready"  # a decoder's first message
MESSAGE_BYTES = 32_768  # of orders, or of replies, in one message, at most


def image_in(memory: memoryview, slot: int, rows: int, columns: int, offset: int = 0) -> DecodedImage:
    """Return a view of the image of `rows` x `columns` in `slot`. It is overwritten once the slot is reused.

    A detail starts `offset` bytes after the image's start.
    """
    return np.ndarray((rows, columns, 3), np.uint8, memory, slot * SLOT_BYTES + FRAME_BYTES + offset)


def still_in(memory: memoryview, slot: int, rows: int, columns: int, size: int) -> bytes:
    """Copy `size` bytes that follow the image in `slot`: the still and, if `size` says so, the data after it."""
    begin = slot * SLOT_BYTES + FRAME_BYTES + 3 * rows * columns
    return bytes(memory[begin : begin + size])
