"""The commands of profiles, in the form of those in `embereye_cli.main`."""

COMMANDS = {
    ("profile",): (f"{__name__}.profile", "let people weld or cook in a zone without a false alarm"),
}
SECTIONS = {"Watch": ("profile",)}
