"""Cameras whose streams are found by ONVIF."""
