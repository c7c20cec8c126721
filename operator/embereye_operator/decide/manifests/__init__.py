"""The Kubernetes manifests of a fleet's children, built from its spec: one module for each kind of object."""
