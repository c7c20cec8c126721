"""The runtimes to which decisions are applied: a Kubernetes API server, or processes on this machine."""
