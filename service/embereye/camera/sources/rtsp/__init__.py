"""Cameras that are asked for their stream by RTSP."""
