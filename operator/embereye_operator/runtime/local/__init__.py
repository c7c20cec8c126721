"""This machine as the runtime: processes, folders and addresses instead of Kubernetes objects."""
