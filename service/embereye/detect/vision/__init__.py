"""Frames to motion and flame evidence. Pure: numpy and OpenCV, time is an argument."""
