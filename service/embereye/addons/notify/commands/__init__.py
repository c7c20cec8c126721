"""The commands of notifications, in the form of those in `embereye_cli.main`."""

COMMANDS = {
    ("notify",): (f"{__name__}.notify", "show and test routes to people, resend what they did not accept"),
}
SECTIONS = {"Watch": ("notify",)}
