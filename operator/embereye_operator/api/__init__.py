"""The API: what users declare in a SensorFleet or CameraFleet, what is answered, and the schema of both."""
