"""The commands of the archive, in the form of those in `embereye_cli.main`."""

COMMANDS = {("incident", "export"): (f"{__name__}.export", "write an alarm with its pictures and hashes to one file")}
GROUPS = {"incident": "evidence of an alarm for others"}
SECTIONS = {"Understand": ("incident",)}
