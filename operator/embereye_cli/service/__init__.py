"""`embereye up` as a service of this machine's systemd."""
