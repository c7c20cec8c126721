"""What a decision is applied to: a Kubernetes API server, or processes on this machine."""
