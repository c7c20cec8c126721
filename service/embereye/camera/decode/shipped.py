"""The appearance network that ships with EmberEye."""

from importlib import resources

from embereye.detect.vision.networks.appearance import AppearanceNetwork

FILE = "appearance.onnx"


def load_network() -> AppearanceNetwork:
    """The network, ready to run: to load it takes 20 ms, and each process that decodes has one."""
    return AppearanceNetwork(resources.files("embereye.detect.vision.networks").joinpath(FILE).read_bytes())
