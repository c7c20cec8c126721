"""The metrics of microphones."""

from embereye.process.telemetry.metric import gauge

FAILING = gauge(
    "embereye_sensor_sound_failing", "Microphones that cannot be heard at present.",
    only_where="the fleet has a source sound",
)  # fmt: skip
