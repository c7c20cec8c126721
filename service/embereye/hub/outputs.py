"""Outputs of actuators: lamps and heaters that one add-on offers, and another one switches."""

from typing import Protocol


class OutputError(Exception):
    """The output was not switched; the text says why."""


class Outputs(Protocol):
    """The outputs of connected actuators."""

    async def switch(self, actuator: str, output: str, *, on: bool) -> None:
        """Switch an output on, or let it have its usual value again.

        It returns once the actuator has the command to switch it on. Raises OutputError then, never if `on` is False:
        an actuator that is gone has its safe values.
        """
