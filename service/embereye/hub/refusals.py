"""The errors of requests that cannot be served as they are.

The parts of the hub raise them, with a sentence for people. `http.middleware` answers each with its status and
`services.statuses` with its gRPC code, so that routes and calls need not handle them.
"""


class InvalidError(ValueError):
    """The request is malformed, or asks for something that is never allowed."""


class ForbiddenError(Exception):
    """The caller is not allowed to do this."""


class UnknownNameError(LookupError):
    """There is no such thing, or it is not stored any more."""


class ConflictError(Exception):
    """The present state does not allow it."""
