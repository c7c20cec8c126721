"""The appearance network that ships with EmberEye."""

from importlib import resources

from embereye.detect.vision.networks.appearance import AppearanceNetwork

FILE = "appearance.onnx"


def load_network() -> AppearanceNetwork:
    """Load the network. It takes 20 ms; each decoding process has one."""
    return AppearanceNetwork(resources.files("embereye.detect.vision.networks").joinpath(FILE).read_bytes())
