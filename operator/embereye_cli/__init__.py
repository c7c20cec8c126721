"""The `embereye` command: each subcommand declares its options here and calls the package that does the work."""
