"""Shared parts of both kinds of shard: assignment, coverage, ledger, evidence spool, and the process around them."""
