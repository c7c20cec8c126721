"""Sensors that publish to an MQTT broker: Zigbee, Z-Wave, LoRaWAN, Tasmota, ESPHome, Shelly and others."""
