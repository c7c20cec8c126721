"""Live pictures of cameras: their JPEGs, and their videos as they arrive, without recoding.

While nobody looks at a camera, `offer` and `offer_video` cost a look into an empty table.
"""

from embereye.camera.clips.ring import ClipUnit, VideoRing
from embereye.process.live_queue import MAX_GROUP, MAX_PICTURE, LivePicture
from embereye.shard.live import LiveSender
from embereye.wire.jpeg.header import SOI
from embereye.wire.mp4 import LiveMuxer, Mp4Error


class LivePictures(LiveSender):
    """The newest pictures and videos of the cameras that people look at."""

    def __init__(self) -> None:
        super().__init__()
        self._muxers: dict[str, LiveMuxer] = {}

    def is_picture_wanted(self, camera: str, encoding: str) -> bool:
        """True if a browser in front of `camera` does not play its `encoding`; '' for a camera that sends pictures."""
        return any(encoding not in plays for plays in self._asked.get(camera, ()))

    def offer(self, camera: str, jpeg: bytes, time_ns: int, encoding: str = "") -> None:
        """Send `jpeg`, taken at `time_ns` (Unix epoch), if somebody wants it; other data is ignored.

        `encoding` is that of the video of which it was made.
        """
        if camera not in self._asked or not self.is_picture_wanted(camera, encoding) or not self._is_shown(camera):
            return
        if jpeg.startswith(SOI) and len(jpeg) <= MAX_PICTURE:
            self._queue(camera, LivePicture(jpeg, time_ns, encoding))

    def offer_video(self, camera: str, unit: ClipUnit, ring: VideoRing) -> None:
        """Send `unit`, the newest in `ring`, if a browser plays it; the first time, with all since the key frame."""
        if camera not in self._asked:
            return
        # In this order: a camera whose video no browser plays is refused as well, although its shard makes no pictures.
        if not self._is_shown(camera) or not any(unit.unit.encoding in plays for plays in self._asked[camera]):
            self._muxers.pop(camera, None)
            return
        units = [unit]
        if camera not in self._muxers:
            self._muxers[camera] = LiveMuxer()
            group = ring.newest_group()
            if sum(earlier.size for earlier in group) <= MAX_GROUP:
                units = group
        for each in units:
            self._send_unit(camera, each)

    def _send_unit(self, camera: str, unit: ClipUnit) -> None:
        coded = unit.unit
        try:
            data = self._muxers[camera].fragment(coded.encoding, coded.size, coded.data, unit.time_ns, key=coded.key)
        except Mp4Error:  # the next key frame may have its parameter sets
            return
        if len(data) > MAX_PICTURE:
            self._queues[camera, True].skip_group()
        elif data:
            self._queue(camera, LivePicture(data, unit.time_ns, coded.encoding))

    def _prune(self) -> None:
        super()._prune()
        self._muxers = {name: muxer for name, muxer in self._muxers.items() if name in self._shown}
