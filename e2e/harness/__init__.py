"""The parts of end-to-end tests: a real cluster, independent witnesses and probers, a diary of events."""
