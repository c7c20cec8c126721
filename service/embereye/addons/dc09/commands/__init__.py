"""The commands of DC-09, in the form of those in `embereye_cli.main`."""

COMMANDS = {
    ("dc09", "test"): (f"{__name__}.test", "send a supervision message to each receiver of a monitoring station")
}
GROUPS = {"dc09": "monitoring stations"}
SECTIONS = {"Set up devices": ("dc09",)}
