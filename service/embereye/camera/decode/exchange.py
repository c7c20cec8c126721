"""What the pool and its decoder processes exchange: images in shared memory, orders and replies by socket."""

import mmap
import struct

import numpy as np

from embereye.camera.decode.image import DecodedImage
from embereye.detect.vision.working import WORKING_SIDE

# Of CPU time: an endless loop ends its process soon, a machine that stands still or is busy with other things does not.
FRAME_SECONDS = 5.0  # for one frame; the slowest honest one takes a tenth of that
UNIT_SECONDS = 0.7  # for one access unit of a video; the slowest honest one takes a tenth of that
HANG_SECONDS = 30.0  # for one frame, of any time: it waits for what never comes
SLOTS = 24  # frames that each decoder can hold
FRAME_BYTES = 8 * 1024 * 1024  # of a compressed frame
IMAGE_BYTES = 1024 * 1024  # of an image of the working size, its still, a picture for the model, and a detail
PICTURE_BYTES = 512 * 1024  # of a picture for the model, at most
DETAIL_BYTES = 3 * WORKING_SIDE**2 * 2  # of a detail, at most: a little more than of the working size
SLOT_BYTES = FRAME_BYTES + IMAGE_BYTES  # of address space: what is not used takes no memory
MARK = SLOTS * SLOT_BYTES  # the byte in which a decoder notes the slot it is at: the frame it died of, if it dies
AT_NONE = 255  # in that byte: it is at none
SHARE_BYTES = MARK + mmap.PAGESIZE  # of each decoder
# Slot, scale, boxes, whether to make a still, whether the appearance network is to run, its close-ups, bytes, width,
# height; of a video its encoding, its stream, access units, the side of a picture for the model, whether the first unit
# is a key frame, whether blocks are to be smoothed, whether the image is wanted, and whether a detail is. Then the
# boxes, the close-ups, the detail's box, the access units.
ORDER = struct.Struct("=BBB??BIHHBIHH????")
BOX = struct.Struct("=4f")
UNIT = struct.Struct("=II")  # bytes, number
ENCODINGS = ("", "H264", "H265")  # "": a picture of its own
FORGET = 255  # in place of an order's slot: the stream's context is needed no more
# Slot, outcome, rows, columns, bytes of the still, when it began and ended, CPU seconds, bytes of what follows; of a
# video the number of the unit that is shown, and the bytes of the picture for the model; rows and columns of the
# detail, or 0. Then the reason of a failure, or what the appearance network says.
REPLY = struct.Struct("=BBHHIdddHIIHH")
LOGIT = struct.Struct("=f")
FAILED, DECODED, HELD = 0, 1, 2  # outcomes; HELD: the picture is shown later
REASON_BYTES = 200  # at most
READY = b"ready"  # a decoder's first message
MESSAGE_BYTES = 32_768  # of orders, or of replies, in one message at most


def image_in(memory: memoryview, slot: int, rows: int, columns: int, behind: int = 0) -> DecodedImage:
    """The image of `rows` x `columns` in `slot`, where it lies: it is overwritten once the slot is reused.

    A detail lies so many bytes `behind` the image itself.
    """
    return np.ndarray((rows, columns, 3), np.uint8, memory, slot * SLOT_BYTES + FRAME_BYTES + behind)


def still_in(memory: memoryview, slot: int, rows: int, columns: int, size: int) -> bytes:
    """A copy of the still in `slot`, which lies behind its image; with more `size`, of what lies behind it as well."""
    place = slot * SLOT_BYTES + FRAME_BYTES + 3 * rows * columns
    return bytes(memory[place : place + size])
