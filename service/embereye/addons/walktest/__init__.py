"""Walk tests: people trigger each device of a zone, and a signed report names those that were not triggered."""
