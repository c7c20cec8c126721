"""The number of shards a fleet needs: the scaling law, autoscalers that follow it, and a record of its inputs."""
