"""The hub's key of a report. A report's id is unique only within its shard, and people can see it."""

import hashlib

from embereye.v1.evidence_pb2 import EvidenceItem


def report_key(item: EvidenceItem, shard: str = "") -> str:
    """The key of `item` from `shard`: a digest of fleet, shard and id, which is short and valid in every store."""
    return _key(item.fleet, shard, item.id)


def earlier_keys(item: EvidenceItem) -> tuple[str, ...]:
    """The other keys under which `item` may be stored.

    Earlier versions stored its bare id. If another shard handed the report over, its id is "SHARD/ID", and SHARD may
    have sent it before. These keys are looked up, but never written: a shard that lies loses only its own report.
    """
    shard, inherited, name = item.id.partition("/")
    return (item.id, _key(item.fleet, shard, name)) if inherited else (item.id,)


def _key(fleet: str, shard: str, name: str) -> str:
    # With the lengths, different reports never give the same text.
    text = f"{len(fleet)} {len(shard)} {fleet}{shard}{name}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
