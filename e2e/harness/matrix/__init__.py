"""The matrix of faults: what is attacked, what a fault is, how it is judged, and the page that tells it."""
