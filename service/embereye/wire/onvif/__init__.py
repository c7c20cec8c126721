"""ONVIF's messages: SOAP, the services of a device and of its media, and WS-Discovery."""
