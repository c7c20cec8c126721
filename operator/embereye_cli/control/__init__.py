"""Commands about the control of actuators."""
