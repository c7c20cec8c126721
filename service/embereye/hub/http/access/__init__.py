"""Access over HTTP: signing in with tokens and an identity provider, and the check in front of every request."""
