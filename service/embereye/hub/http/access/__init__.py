"""Who may ask: signing in with tokens and an identity provider, and what is checked before every request."""
