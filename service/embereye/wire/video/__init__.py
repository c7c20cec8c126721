"""H.264 and H.265: NAL units, their headers, and the access units that they form."""
