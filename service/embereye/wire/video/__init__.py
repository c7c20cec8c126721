"""H.264 and H.265: NAL units, what their headers say, and the access units that they make up."""
