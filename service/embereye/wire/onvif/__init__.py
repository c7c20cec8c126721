"""ONVIF's messages: SOAP, the device and media services, and WS-Discovery."""
