"""What a runtime raises: that something is away, is refused, is somebody else's."""


class UnavailableError(Exception):
    """What was asked cannot be reached now: a shard that starts, a hub that restarts. Says what and why."""


class RefusedError(Exception):
    """What was asked is not allowed, and asking again will not help: a quota, a policy. Says what and why."""


class TakenError(RefusedError):
    """An object of the name is somebody else's: it is left as it is. Says which, and what to do."""


class NotLeadingError(Exception):
    """What was asked is somebody else's to do now."""
