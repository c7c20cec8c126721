"""The commands of statements, in the form of those in `embereye_cli.main`."""

COMMANDS = {
    ("statement",): (f"{__name__}.statement", "list, show, save and verify the signed statements of each day's watch"),
}
SECTIONS = {"Understand": ("statement",)}
