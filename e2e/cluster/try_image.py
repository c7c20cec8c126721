"""Check in the built image that all trimmed parts work, as the chart runs them. Called by build-image.

It runs as an unknown user without root, with a read-only root file system, and with LD_BIND_NOW=1, so that a missing
symbol of a shared library fails at once. A failure ends it with a traceback.
"""

import asyncio
import contextlib
import getpass
import os
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

# OpenCV before PyAV, whose FFmpeg it uses.
import cv2
import numpy as np


def film() -> list[bytes]:
    """Draw eight JPEG pictures of 160x120 pixels."""
    pictures = [np.full((120, 160, 3), 20 * number, np.uint8) for number in range(8)]
    return [cv2.imencode(".jpg", picture)[1].tobytes() for picture in pictures]


def decode_jpeg() -> None:
    from embereye.camera.decode.image import decode

    for size in (None, (160, 120)):  # by OpenCV, by simplejpeg
        assert decode(film()[3], 1, size).shape == (120, 160, 3)


def solve_equations() -> None:
    """Use the LAPACK that replaces OpenCV's."""
    matrix = np.random.default_rng(1).random((64, 64)) + np.eye(64) * 64
    for method in (cv2.DECOMP_LU, cv2.DECOMP_QR, cv2.DECOMP_SVD):
        solved, inverse = cv2.solve(matrix, np.eye(64), flags=method)
        assert solved
        assert np.allclose(matrix @ inverse, np.eye(64)), method
    assert np.allclose(cv2.gemm(matrix, matrix, 1, np.zeros((64, 64)), 0), matrix @ matrix)


def decode_video() -> None:
    import av

    for codec in ("libx264", "libx265"):
        path = Path("/tmp/film.mp4")
        with av.open(path, "w") as target:
            stream = target.add_stream(codec, rate=8)
            stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
            for data in film():
                picture = np.asarray(cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR), np.uint8)
                target.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="bgr24")))
            target.mux(stream.encode(None))
        with av.open(path) as source:
            assert len(list(source.decode(video=0))) == 8, codec
        capture = cv2.VideoCapture(str(path))
        assert [capture.read()[0] for _ in range(9)] == [True] * 8 + [False], f"OpenCV does not read {codec}"


def run_network() -> None:
    from embereye.detect.vision.networks.appearance import AppearanceNetwork

    network = AppearanceNetwork((files("embereye.detect.vision.networks") / "appearance.onnx").read_bytes())
    assert np.isfinite(network.logits(np.zeros((120, 160, 3), np.uint8), ())).all()


async def archive() -> None:
    from arro3.io import read_parquet

    from embereye.sensor.archive import Archive

    folder = Path("/tmp/telemetry")
    writer = Archive(folder, "s-0", rotate_bytes=1, share_free=lambda _: 1.0)
    writer.add("a", np.array([[283.0, np.nan, 2.0, 0.0]]), 1)
    writing = asyncio.ensure_future(writer.run())
    async with asyncio.timeout(20):
        while not writer.written:
            await asyncio.sleep(0.01)
    writing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await writing
    [path] = folder.glob("readings-*.parquet")
    assert read_parquet(path).read_all().num_rows == 1


def load_everything() -> None:
    """Import the modules that are loaded late: the operator's libraries, certificates, tracing."""
    import cryptography.x509
    import kopf
    import lightkube
    import opentelemetry.exporter.otlp.proto.grpc
    import rich.live
    import rich.progress
    import rich.table
    import uvloop

    import embereye_cli.main

    rich.console.Console().print(rich.table.Table("it", "prints"))
    assert all((cryptography.x509, kopf, lightkube, opentelemetry.exporter.otlp.proto.grpc, uvloop, embereye_cli.main))


def check_contents() -> None:
    """Check that nothing is installed that a service does not need: no simulators, benchmarks or tests."""
    for package in ("embereye.sim", "embereye_bench", "harness"):
        assert find_spec(package) is None, f"{package} is in the image"
    tests = [*Path("/opt/embereye").rglob("tests")]
    assert not tests, tests


def refuse_to_be_trusted() -> None:
    assert os.getuid() != 0, "it runs as root"
    assert getpass.getuser() == "embereye", "kopf signs with a name"
    try:
        Path("/opt/written").touch()
    except OSError:
        return
    raise AssertionError("its root file system is writable")


if __name__ == "__main__":
    refuse_to_be_trusted()
    check_contents()
    load_everything()
    decode_jpeg()
    decode_video()
    solve_equations()
    run_network()
    asyncio.run(archive())
