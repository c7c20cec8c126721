"""The commands of walk tests, in the form of those in `embereye_cli.main`."""

COMMANDS = {
    ("walktest",): (f"{__name__}.walktest", "trigger each device of a zone, and get a signed report"),
}
SECTIONS = {"Watch": ("walktest",)}
