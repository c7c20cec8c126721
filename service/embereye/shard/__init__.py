"""What both kinds of shard share: assignment, coverage, ledger, evidence spool, and the process around them."""
