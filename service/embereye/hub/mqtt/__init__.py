"""MQTT: states of zones and devices, retained at a broker, descriptions for Home Assistant, and switches of zones."""
