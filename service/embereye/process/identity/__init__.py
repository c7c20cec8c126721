"""The identities of EmberEye's processes: names, certificates, and the calls that each process may make."""
