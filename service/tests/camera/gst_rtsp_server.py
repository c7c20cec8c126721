"""A gst-rtsp-server for tests, run by the system's Python: prints its port; arguments: [USER PASSWORD [basic]]."""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtspServer  # noqa: E402

LAUNCH = {
    "/jpeg": "( videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=30/1 "
    "! jpegenc quality=85 ! rtpjpegpay name=pay0 pt=26 )",
    "/dynamic": "( videotestsrc is-live=true ! video/x-raw,format=Y42B,width=320,height=240,framerate=30/1 "
    "! jpegenc quality=50 ! rtpjpegpay name=pay0 pt=96 )",
    "/h264": "( videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=30/1 "
    "! openh264enc gop-size=15 ! h264parse ! rtph264pay name=pay0 pt=97 )",
    "/h265": "( videotestsrc is-live=true ! video/x-raw,format=I420,width=320,height=240,framerate=30/1 "
    "! x265enc speed-preset=ultrafast tune=zerolatency key-int-max=15 ! h265parse ! rtph265pay name=pay0 pt=97 )",
}


def protect(server, user, password, basic):
    methods = GstRtspServer.RTSPAuth()
    if hasattr(methods, "set_supported_methods") and not basic:
        gi.require_version("GstRtsp", "1.0")
        from gi.repository import GstRtsp

        methods.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
    token = GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", "user")
    if basic:
        methods.add_basic(GstRtspServer.RTSPAuth.make_basic(user, password), token)
    else:
        methods.add_digest(user, password, token)
    server.set_auth(methods)


def main():
    Gst.init(None)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service("0")
    guarded = len(sys.argv) > 2
    if guarded:
        protect(server, sys.argv[1], sys.argv[2], "basic" in sys.argv[3:])
    for path, launch in LAUNCH.items():
        factory = GstRtspServer.RTSPMediaFactory()
        factory.set_launch(launch)
        if guarded:
            factory.add_role_from_structure(
                Gst.Structure.from_string("user, media.factory.access=true, media.factory.construct=true")[0]
            )
        server.get_mount_points().add_factory(path, factory)
    server.attach(None)
    print(server.get_bound_port(), flush=True)
    GLib.MainLoop().run()


main()
