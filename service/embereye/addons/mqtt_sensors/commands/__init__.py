"""The command of this add-on."""

COMMANDS = {
    ("sensor", "map"): (
        "embereye.addons.mqtt_sensors.commands.sensor_map",
        "try out how the messages of a sensor are read",
    ),
}
GROUPS = {"sensor": "try out a sensor"}
SECTIONS = {"Set up devices": ("sensor",)}
