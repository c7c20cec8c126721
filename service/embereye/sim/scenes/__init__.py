"""What simulated devices see: rooms, fires, lookalikes."""
