"""Errors of signing in with the identity provider."""


class NotProvedError(Exception):
    """The provider's answer does not prove who the person is, or gives them no role."""


class UnknownKeyError(NotProvedError):
    """The token is signed by a key that is not among the provider's known keys."""


class ProviderError(Exception):
    """The provider does not answer, or not by OpenID Connect; the message has the request and the answer."""
