"""The commands of Modbus, in the form of those in `embereye_cli.main`."""

COMMANDS = {
    ("modbus", "test"): (f"{__name__}.test", "check the outputs of the building, or switch each one on briefly")
}
GROUPS = {"modbus": "outputs to the building"}
SECTIONS = {"Set up devices": ("modbus",)}
