"""Pictures of an alarm, from the seconds before it to the hub: kept in memory, recorded, spooled, delivered."""
