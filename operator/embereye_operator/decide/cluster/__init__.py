"""What a cluster's nodes, pods and watches tell: nodes to be left, hubs that are away, watches that died."""
