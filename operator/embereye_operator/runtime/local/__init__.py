"""The runtime that `embereye up` has: processes, folders and addresses instead of Kubernetes objects."""
