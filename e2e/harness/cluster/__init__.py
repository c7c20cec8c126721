"""A kind cluster, the chart in it, a building around it, and the records of a run."""
