"""Feeds over HTTP: the WebSocket, stored subscriptions, history."""
