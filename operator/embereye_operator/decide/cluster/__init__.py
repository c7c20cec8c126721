"""Conclusions from a cluster's nodes, pods and watches: nodes to leave, absent hubs, dead watches."""
