"""MQTT: what zones and devices are, retained at a broker and described there for Home Assistant."""
