"""A gst-rtsp-server for tests, run by the system's Python: prints its port, then a line per receiver report.

Arguments: [USER PASSWORD [basic]] [timeout=SECONDS]; a session without keep-alive for so long ends.
"""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

LAUNCH = {
    "/jpeg": "( videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=30/1 "
    "! jpegenc quality=85 ! rtpjpegpay name=pay0 pt=26 )",
    "/dynamic": "( videotestsrc is-live=true ! video/x-raw,format=Y42B,width=320,height=240,framerate=30/1 "
    "! jpegenc quality=50 ! rtpjpegpay name=pay0 pt=96 )",
    "/h264": "( videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=30/1 "
    "! openh264enc gop-size=15 ! h264parse ! rtph264pay name=pay0 pt=97 )",
    "/h264-bframes": "( videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=30/1 "
    "! x264enc key-int-max=15 bframes=3 b-adapt=false speed-preset=fast ! h264parse ! rtph264pay name=pay0 pt=97 )",
    "/h264-interlaced": "( videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=30/1 "
    "! x264enc key-int-max=15 interlaced=true tune=zerolatency ! h264parse ! rtph264pay name=pay0 pt=97 )",
    "/h264-slices": "( videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=30/1 "
    "! x264enc key-int-max=15 tune=zerolatency option-string=slices=4 ! h264parse "
    "! rtph264pay name=pay0 pt=97 aggregate-mode=zero-latency mtu=300 )",
    "/h264-refresh": "( videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=30/1 "
    "! x264enc key-int-max=15 intra-refresh=true tune=zerolatency ! h264parse ! rtph264pay name=pay0 pt=97 )",
    "/h264-inband": "( videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=30/1 "
    "! x264enc key-int-max=15 tune=zerolatency ! h264parse config-interval=-1 ! rtph264pay pt=97 "
    "! capssetter name=pay0 replace=true join=false "
    "caps=application/x-rtp,media=video,clock-rate=90000,encoding-name=H264,payload=97 )",
    "/h264-feedback": "( videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=30/1 "
    "! x264enc key-int-max=9000 tune=zerolatency ! h264parse config-interval=-1 ! rtph264pay name=pay0 pt=97 )",
    "/h265": "( videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=30/1 "
    "! x265enc speed-preset=ultrafast tune=zerolatency key-int-max=15 ! h265parse ! rtph265pay name=pay0 pt=97 )",
}


def protect(server, user, password, basic):
    methods = GstRtspServer.RTSPAuth()
    if hasattr(methods, "set_supported_methods") and not basic:
        methods.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
    token = GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", "user")
    if basic:
        methods.add_basic(GstRtspServer.RTSPAuth.make_basic(user, password), token)
    else:
        methods.add_digest(user, password, token)
    server.set_auth(methods)


def report_once(media, reported):
    for number in range(media.n_streams()):
        session = media.get_stream(number).get_rtpsession()
        if session is not None and session not in reported:
            reported.append(session)
            session.connect("on-ssrc-active", lambda _, ssrc: print(f"report from {ssrc}", flush=True))


def watch(server, seconds):
    """Print reports, and end sessions after `seconds` without a keep-alive."""
    reported = []

    def connected(_, client):
        client.connect("play-request", lambda _, context: report_once(context.media, reported))
        if seconds:
            client.connect("new-session", lambda _, session: limit(session, seconds))

    server.connect("client-connected", connected)
    GLib.timeout_add(200, lambda: server.get_session_pool().cleanup() or True)


def limit(session, seconds):
    session.set_property("extra-timeout", 0)
    session.set_timeout(seconds)


def main():
    Gst.init(None)
    options = [word for word in sys.argv[1:] if word.startswith("timeout=")]
    sys.argv = [word for word in sys.argv if word not in options]
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service("0")
    guarded = len(sys.argv) > 2
    if guarded:
        protect(server, sys.argv[1], sys.argv[2], "basic" in sys.argv[3:])
    for path, launch in LAUNCH.items():
        factory = GstRtspServer.RTSPMediaFactory()
        factory.set_launch(launch)
        if path.endswith("feedback"):
            factory.set_profiles(GstRtsp.RTSPProfile.AVPF)
        if guarded:
            factory.add_role_from_structure(
                Gst.Structure.from_string("user, media.factory.access=true, media.factory.construct=true")[0]
            )
        server.get_mount_points().add_factory(path, factory)
    watch(server, int(options[0].partition("=")[2]) if options else 0)
    server.attach(None)
    print(server.get_bound_port(), flush=True)
    GLib.MainLoop().run()


main()
