"""Known stream addresses of cameras, by maker.

`streams_of` orders the table for one camera: first its own maker's streams, as far as the maker is known from ONVIF or
from the camera's answers. The table has addresses only, never passwords. Each entry names its source.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class KnownStreams:
    """The addresses of one kind of camera. An address begins with its scheme and has {host} in the host's place."""

    maker: str
    main: str  # the large stream
    sub: str = ""  # the small stream; empty: it has none
    sign: str = ""  # pattern in the camera's answers: maker, `Server`, realm


# In order of how often they are met. Addresses without a port use the scheme's own.
KNOWN = (
    # zwplayer.com/articles/device/ip-camera-rtsp-url-guide.html: "{channel}0{stream}", 101 main, 102 sub
    KnownStreams(
        "Hikvision",
        "rtsp://{host}/Streaming/Channels/101",
        "rtsp://{host}/Streaming/Channels/102",
        r"hikvision|HiWatch|Annke|IP Camera\(|DVRDVS|App-webs",
    ),
    # help.dayta.ai/knowledge-base/how-do-i-get-the-rtsp-stream-url-from-my-camera: subtype 0 main, 1 sub
    KnownStreams(
        "Dahua",
        "rtsp://{host}/cam/realmonitor?channel=1&subtype=0",
        "rtsp://{host}/cam/realmonitor?channel=1&subtype=1",
        r"dahua|amcrest|lorex|imou|Login to ",
    ),
    # support.reolink.com/hc/en-us/articles/900000630706: Preview_<channel>_<stream>, older ones h264Preview_…
    KnownStreams("Reolink", "rtsp://{host}/Preview_01_main", "rtsp://{host}/Preview_01_sub", r"reolink|BcmServer"),
    KnownStreams("Reolink", "rtsp://{host}/h264Preview_01_main", "rtsp://{host}/h264Preview_01_sub", r"reolink"),
    # VAPIX Video Streaming API, studylib.net/doc/8696178: axis-media/media.amp with resolution and fps
    KnownStreams(
        "Axis",
        "rtsp://{host}/axis-media/media.amp",
        "rtsp://{host}/axis-media/media.amp?resolution=640x360&fps=10",
        r"axis",
    ),
    # actutana.com/streaming-video-quest-ce-le-flux-rtsp: stream1; Frigate's issues use stream2 as the small one
    KnownStreams("Tapo", "rtsp://{host}/stream1", "rtsp://{host}/stream2", r"tapo|tp-?link"),
    # support.hanwhavision.eu/hc/en-gb/articles/4414178841746: profile<number>/media.smp; profile 1 is MJPEG
    KnownStreams(
        "Hanwha",
        "rtsp://{host}/profile2/media.smp",
        "rtsp://{host}/profile3/media.smp",
        r"hanwha|samsung|wisenet|iPolis",
    ),
    # knowledge.keenfinity-group.com, "How is RTSP usage supported with Bosch VIP Devices?": inst selects the stream
    KnownStreams("Bosch", "rtsp://{host}/?inst=1", "rtsp://{host}/?inst=2", r"bosch"),
    # FLIR DH-390 User's Guide 427-0100-00-12, page 20: stream1 and ch0 visible, stream3 and ch2 thermal
    KnownStreams("FLIR", "rtsp://{host}/ch0", "rtsp://{host}/ch1", r"flir"),
    # avycon.freshdesk.com/support/solutions/articles/36000299004 and …328602
    KnownStreams("Avycon", "rtsp://{host}/profile1", "rtsp://{host}/profile2", r"avycon"),
    # router-switch.com, "RTSP Formats of Hot Brands Network Cameras"
    KnownStreams("Uniview", "rtsp://{host}/video1", "rtsp://{host}/video2", r"uniview|UNV"),
    # github.com/alienatedsec/yi-hack-v5/wiki/Integrating-with-Frigate
    KnownStreams("Yi", "rtsp://{host}/ch0_0.h264", "rtsp://{host}/ch0_1.h264", r"yi-hack"),
    # help.dayta.ai, as Dahua
    KnownStreams("other", "rtsp://{host}/live/ch0", "rtsp://{host}/live/ch1"),
    KnownStreams("other", "rtsp://{host}/"),
)
# MJPEG over HTTP, where RTSP has nothing.
KNOWN_MJPEG = (
    # github.com/espressif/esp32-camera/issues/24: the example's stream has a separate port
    KnownStreams("ESP32-CAM", "http://{host}:81/stream"),
    # developer.mobotix.com/docs/params.html: stream=full is JPEG, MxPEG is not
    KnownStreams("Mobotix", "http://{host}/control/faststream.jpg?stream=full&fps=10", sign=r"mobotix"),
    # VAPIX, as above
    KnownStreams("Axis", "http://{host}/axis-cgi/mjpg/video.cgi?resolution=640x360", sign=r"axis"),
    # support.hanwhavision.eu, as above
    KnownStreams(
        "Hanwha",
        "http://{host}/stw-cgi/video.cgi?msubmenu=stream&action=view&Profile=1&CodecType=MJPEG&Resolution=800x450"
        "&FrameRate=15&CompressionLevel=10",
        sign=r"hanwha|wisenet",
    ),
    # mjpg-streamer's output_http and ESPHome's esp32_camera_web_server, both 8080
    KnownStreams("mjpg-streamer", "http://{host}:8080/?action=stream"),
    KnownStreams("ESPHome", "http://{host}:8080/"),
)
# Ports that cameras listen at, and what for. Tapo answers ONVIF at 2020, Reolink at 8000. UniFi Protect has 7447 and
# 7441, with an alias as path that only its page shows: github.com/datarhei/restreamer/issues/307,
# github.com/koush/scrypted/issues/2016
RTSP_PORTS, RTSPS_PORTS = (554, 8554, 7447), (322, 7441)
HTTP_PORTS, ONVIF_PORTS = (80, 81, 8080), (80, 2020, 8000, 8899, 8080)


def maker_of(said: str) -> str:
    """Return the maker that a camera's own words reveal; empty if none is known."""
    known_makers = (
        known.maker for known in KNOWN + KNOWN_MJPEG if known.sign and re.search(known.sign, said, re.IGNORECASE)
    )
    return next(known_makers, "")


def streams_of(maker: str, table: Sequence[KnownStreams] = KNOWN) -> list[KnownStreams]:
    """Return `table` with the streams of `maker` first."""
    return sorted(table, key=lambda known: known.maker.casefold() != maker.casefold())


def makers() -> list[str]:
    """Return the makers in the tables, by name."""
    return sorted({known.maker for known in KNOWN + KNOWN_MJPEG} - {"other"}, key=str.casefold)
