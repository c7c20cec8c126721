"""A Kubernetes API server as the runtime: caches and watches, writes, Leases, Events, nodes and pods."""
