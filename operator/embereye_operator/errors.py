"""Errors of a runtime: an object is unavailable, refused, or owned by somebody else."""


class UnavailableError(Exception):
    """A process or server cannot be reached now, such as a restarting shard. The message has the reason."""


class KindMissingError(UnavailableError):
    """The API server has no CustomResourceDefinition of a fleet. The message has its name and the remedy."""


class RefusedError(Exception):
    """A request is forbidden, and retries will not help: a quota, a policy. The message has the reason."""


class TakenError(RefusedError):
    """An object of this name belongs to somebody else. The message has its owner and the remedy."""


class NotLeadingError(Exception):
    """Another replica leads now and has to do this work."""
