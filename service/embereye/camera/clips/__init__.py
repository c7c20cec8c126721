"""Pictures of an alarm on their way from memory to the hub: buffered, recorded, spooled, delivered."""
