"""The commands of self-tests, in the form of those in `embereye_cli.main`."""

COMMANDS = {
    ("selftest",): (f"{__name__}.selftest", "list the self-tests with lamps and heaters, or run one"),
}
SECTIONS = {"Watch": ("selftest",)}
