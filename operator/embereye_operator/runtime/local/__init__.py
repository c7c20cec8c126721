"""The runtime of `embereye up`: processes, folders and addresses instead of Kubernetes objects."""
