"""The project's own checks of style, run by `make lint`."""
