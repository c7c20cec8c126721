"""A kind cluster, the chart in it, a building around it, and what is kept of a run."""
