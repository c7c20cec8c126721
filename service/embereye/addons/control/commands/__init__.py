"""The commands of control, in the form of those in `embereye_cli.main`."""

COMMANDS = {
    ("simulate", "head"): (f"{__name__}.head", "simulate a pan-tilt head that a controller steers"),
    ("control", "demo"): (f"{__name__}.demo", "steer a simulated head and measure each turn"),
}
GROUPS = {"control": "steer actuators"}
SECTIONS = {"Set up devices": ("control",)}
