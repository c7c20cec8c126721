"""Access to the hub: tokens with roles, browser sessions, sign-in links, and the audit trail."""
