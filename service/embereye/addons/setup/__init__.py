"""Set up devices in the console: try a camera, add, change and remove devices in manifests. See README.md."""
