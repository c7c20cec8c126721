"""EmberEye's data plane: shards that detect, the hub that raises alarms, and what they share."""
