"""Who may do what at the hub: tokens with roles, sessions of browsers, links that sign in, and the audit trail."""
