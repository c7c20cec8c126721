"""The hub over HTTP: JSON, a WebSocket of events, the console."""
