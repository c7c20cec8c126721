"""Traces of alarms, by OpenTelemetry: off, and not even imported, unless the environment names an OTLP endpoint."""

import logging
import os
import threading
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

logger = logging.getLogger(__name__)
ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
VARIABLES = (ENDPOINT_VARIABLE, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
CLOSE_SECONDS = 1.0  # for what was not sent yet; a collector that is away keeps no process from ending
TRACEPARENT = "traceparent"  # W3C Trace Context


class OpenSpan:
    """A span that has begun. `traceparent` is what its children, here or in another process, name as their parent."""

    def __init__(self, span: Any, traceparent: str) -> None:
        self._span = span
        self.traceparent = traceparent

    def end(self, end_ns: int) -> str:
        """End it at `end_ns` (Unix epoch); returns `traceparent`."""
        self._span.end(end_ns)
        return self.traceparent


class Tracer:
    """Spans with times of the caller's, nanoseconds since the Unix epoch; sent in the background, in batches."""

    def __init__(self, service: str, attributes: Mapping[str, str]) -> None:
        """Raises ImportError where the extra is not installed."""
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        name = os.environ.get("OTEL_SERVICE_NAME", service)
        resource = Resource.create({"service.name": name, "service.version": _version(), **attributes})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("embereye")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, name: str, begin_ns: int, *, parent: str = "", **attributes: str | int | float) -> OpenSpan:
        """Begin a span under `parent`, a traceparent; '' begins a trace."""
        from opentelemetry.trace import set_span_in_context

        context = self._propagator.extract({TRACEPARENT: parent}) if parent else None
        told = {f"embereye.{key}": value for key, value in attributes.items()}
        span = self._tracer.start_span(name, context, attributes=told, start_time=begin_ns)
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(span))
        return OpenSpan(span, carrier.get(TRACEPARENT, ""))

    def record(
        self, name: str, begin_ns: int, end_ns: int, *, parent: str = "", **attributes: str | int | float
    ) -> str:
        """A span that is over; returns its traceparent."""
        return self.begin(name, begin_ns, parent=parent, **attributes).end(max(begin_ns, end_ns))

    def close(self) -> None:
        """Send what was not sent yet, for CLOSE_SECONDS at most."""
        closing = threading.Thread(target=self._provider.shutdown, name="tracing-close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def _version() -> str:
    try:
        return version("embereye")
    except PackageNotFoundError:
        return "unknown"


def open_tracer(service: str, **attributes: str) -> Tracer | None:
    """A tracer where the environment asks for one; None where it does not, or cannot have it, which is logged."""
    variable = next((name for name in VARIABLES if os.environ.get(name)), "")
    if not variable:
        return None
    try:
        return Tracer(service, attributes)
    except ImportError as error:
        why = f"{error}; install embereye[otel], or unset it"
    except Exception as error:  # the library has many variables, and errors of its own for what they hold
        why = f"OpenTelemetry does not start with the variables that it is given: {error}"
    logger.error("%s is set, but alarms are not traced: %s", variable, why)  # watching goes on without
    return None
