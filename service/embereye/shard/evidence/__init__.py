"""From a sign to a report that the hub has acknowledged: episodes, spool, delivery, canaries."""
