"""What goes wrong when somebody signs in with the identity provider."""


class NotProvedError(Exception):
    """What the provider says does not prove who somebody is, or gives them no role."""


class UnknownKeyError(NotProvedError):
    """The token is signed by a key that is not among the provider's, as far as they are known here."""


class ProviderError(Exception):
    """The provider does not answer, or not as OpenID Connect has it; says what was asked and what came."""
