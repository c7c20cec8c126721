"""Spec in, Kubernetes manifests out, nothing else: a fleet's children, a module for each kind of object."""
