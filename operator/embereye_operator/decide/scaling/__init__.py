"""How many shards a fleet needs: the scaling law, other autoscalers that follow it, and a record of its inputs."""
