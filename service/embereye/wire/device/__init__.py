"""The text protocol of sensor devices: lines that end in `!`, and the commands that servers send."""
