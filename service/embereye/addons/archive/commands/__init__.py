"""The commands of the archive, in the form of those in `embereye_cli.main`."""

COMMANDS = {
    ("incident", "export"): (f"{__name__}.export", "write an alarm with its pictures and hashes to one file"),
    ("hub", "recover"): (f"{__name__}.recover", "fill a hub's database and clips from its bucket or folder"),
    ("backup", "make"): (f"{__name__}.make", "copy a running hub's history and clips to a bucket or a folder"),
}
GROUPS = {"incident": "evidence of an alarm for others", "backup": "backups of a hub's history and clips"}
SECTIONS = {"Understand": ("incident",), "Tools": ("backup",)}
