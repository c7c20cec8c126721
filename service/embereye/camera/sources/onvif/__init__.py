"""Cameras that are asked by ONVIF which streams they have."""
