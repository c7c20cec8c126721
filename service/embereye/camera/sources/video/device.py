"""Pictures of a local camera (Video4Linux), by libavdevice. JPEG from the camera is passed on undecoded.

The player's process iterates over `play_device`, which raises a DeviceError for people when the camera cannot be played
any more. Formats are requested in the order of WISHES.
"""

import errno
from collections.abc import Iterator

import av
import cv2
from av.container.input import InputContainer

FORMAT = "v4l2"
# Formats to request, the first that the camera has: JPEG, which may be dropped undecoded, then any other.
WISHES: tuple[dict[str, str], ...] = (
    {"input_format": "mjpeg", "video_size": "640x480"},
    {"video_size": "640x480"},
    {},
)
_FATAL = {errno.EBUSY: "another program uses it", errno.ENODEV: "it was unplugged", errno.ENOENT: "it does not exist"}


class DeviceError(ValueError):
    """The reason why a device cannot be played, for people."""


def open_device(path: str) -> InputContainer:
    """Open the device; raise DeviceError if it has no usable video."""
    problem = ""
    for wish in WISHES:
        try:
            return av.open(path, format=FORMAT, options=wish)
        except OSError as error:  # av.FFmpegError derives from it where the system has a number for it
            if error.errno in _FATAL:
                raise DeviceError(_FATAL[error.errno]) from error
            problem = error.strerror or str(error)
        except av.FFmpegError as error:
            problem = str(error)
    raise DeviceError(f"it has no video ({problem})")


def pictures(container: InputContainer, quality: int) -> Iterator[bytes]:
    """Yield the pictures of `container` as JPEG until it ends; other formats are coded with `quality`."""
    if not container.streams.video:
        raise DeviceError("it has no video")
    stream = container.streams.video[0]
    stream.codec_context.thread_count = 1
    if stream.codec_context.name == "mjpeg":
        yield from (bytes(packet) for packet in container.demux(stream) if packet.size)
        return
    for frame in container.decode(stream):
        coded, data = cv2.imencode(".jpg", frame.to_ndarray(format="bgr24"), [cv2.IMWRITE_JPEG_QUALITY, quality])
        if not coded:
            raise DeviceError("a picture cannot be coded as JPEG")
        yield data.tobytes()


def play_device(path: str, quality: int) -> Iterator[bytes]:
    """Yield the pictures of the device at `path` as JPEG; raise DeviceError if it cannot be played."""
    try:
        with open_device(path) as container:
            yield from pictures(container, quality)
    except (av.FFmpegError, OSError) as error:
        raise DeviceError(f"it stopped ({error.strerror or error})") from error
