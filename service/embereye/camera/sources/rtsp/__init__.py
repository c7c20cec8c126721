"""Cameras that send their stream by RTSP."""
