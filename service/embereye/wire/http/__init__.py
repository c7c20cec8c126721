"""What cameras send over HTTP: streams of pictures, demands for credentials, SOAP."""
