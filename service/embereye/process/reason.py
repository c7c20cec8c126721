"""The reason of a failure in words, for logs, statuses and messages."""

import re

import grpc

# Codes that gRPC gives to calls without an answer.
UNANSWERED = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.CANCELLED,
}
# What gRPC, OpenSSL or the system says about such a call (a regular expression) → the same in plain words.
SENTENCES = {
    "Connection refused": "connection refused",
    "WRONG_VERSION_NUMBER": "it does not use TLS",
    "CERTIFICATE_VERIFY_FAILED": "its certificate is not trusted",
    "Hostname Verification": "its certificate has another name",
    "ALERT|[Hh]andshake failed|[Hh]andshake read failed": "the TLS handshake failed",
    "lookup failed|[Nn]ame or service": "its name cannot be resolved",
    "[Uu]nreachable|No route": "there is no route to it",
    "Deadline|[Tt]imed? ?out": "no answer in time",
    "Socket closed|Connection reset|Broken pipe|Stream removed|handshaker shutdown|from Core|Cancelling all calls": (
        "the connection was closed"
    ),
}
UNKNOWN_CALL = "Method not found"  # of another version, or of a replica that serves only evidence


def reason_of(error: BaseException) -> str:
    """The text of `error` on one line. Some errors have none, such as httpx's ReadTimeout: then what kind it is.

    Of a call by gRPC that nobody answered, why; of one that was refused, its code and the peer's sentence.
    """
    if isinstance(error, grpc.aio.AioRpcError):
        return _grpc_reason(error.code(), error.details() or "")
    if text := " ".join(str(error).split()):
        return text
    return "timed out" if isinstance(error, TimeoutError) else type(error).__name__


def _grpc_reason(code: grpc.StatusCode, details: str) -> str:
    if code in UNANSWERED:
        for sign, sentence in SENTENCES.items():
            if re.search(sign, details):
                return sentence
    if code is grpc.StatusCode.UNIMPLEMENTED and UNKNOWN_CALL in details:
        return "it does not know this call"
    return f"{code.name}: {details}" if details else code.name
