"""MQTT: the states of zones and devices, retained at a broker and described there for Home Assistant."""
