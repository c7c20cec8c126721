"""The commands of sound, in the form of those in `embereye_cli.main`."""

COMMANDS = {("bench", "sound"): (f"{__name__}.hours", "count false alarms in hours of synthetic speech and music")}
SECTIONS: dict[str, tuple[str, ...]] = {}
