"""EmberEye's control plane: decides who owns which device, and how many shards there are."""
