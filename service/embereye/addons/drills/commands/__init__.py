"""The command of drills, in the form of those in `embereye_cli.main`."""

COMMANDS = {
    ("drill",): (f"{__name__}.drill", "list, show and verify the signed reports of drills"),
}
SECTIONS = {"Understand": ("drill",)}
