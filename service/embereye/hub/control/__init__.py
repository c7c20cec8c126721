"""Lockstep control: actuators that are connected, who steers them, and when safe values take over."""
