"""Whom clients trust over TLS."""

import ssl

import pytest

from embereye.process.tls.trust import trusting


def test_certificates_that_people_make_are_taken_with_newer_pythons_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make = ssl.create_default_context

    def newer(*, cafile: str | None) -> ssl.SSLContext:
        context = make(cafile=cafile)
        context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT  # as from 3.13 on
        return context

    monkeypatch.setattr(ssl, "create_default_context", newer)
    context = trusting()
    assert not context.verify_flags & ssl.VerifyFlags.VERIFY_X509_STRICT
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
