"""Traces of alarms by OpenTelemetry, which is only imported if the environment names an OTLP endpoint.

Callers state the begin and end of a span themselves, since data may have arrived long before its analysis. A span is
identified by its `traceparent`, a string: reports carry it, so that the hub's spans continue the shard's trace. The
library sends spans from a thread in the background. A failure to start is logged, and alarms are not traced.
"""

import logging
import os
import threading
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

logger = logging.getLogger(__name__)
ENDPOINT_VARIABLE = "OTEL_EXPORTER_OTLP_ENDPOINT"
VARIABLES = (ENDPOINT_VARIABLE, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
CLOSE_SECONDS = 1.0  # longest wait at the end for unsent spans
TRACEPARENT = "traceparent"  # W3C Trace Context


class OpenSpan:
    """An open span. Its children, here or in another process, refer to it by `traceparent`."""

    def __init__(self, span: Any, traceparent: str) -> None:
        self._span = span
        self.traceparent = traceparent

    def end(self, end_ns: int) -> str:
        """End the span at `end_ns` (Unix epoch); return `traceparent`."""
        self._span.end(end_ns)
        return self.traceparent


class Tracer:
    """Makes spans with the caller's times, nanoseconds since the Unix epoch; sends them in the background."""

    def __init__(self, service: str, attributes: Mapping[str, str]) -> None:
        """Connect to the collector; ImportError if the extra is not installed."""
        from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        name = os.environ.get("OTEL_SERVICE_NAME", service)
        resource = Resource.create({"service.name": name, "service.version": own_version(), **attributes})
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("embereye")
        self._propagator = TraceContextTextMapPropagator()

    def begin(self, name: str, begin_ns: int, *, parent: str = "", **attributes: str | int | float) -> OpenSpan:
        """Begin a span under `parent`, a traceparent; '' begins a new trace."""
        from opentelemetry.trace import set_span_in_context

        context = self._propagator.extract({TRACEPARENT: parent}) if parent else None
        prefixed = {f"embereye.{key}": value for key, value in attributes.items()}
        span = self._tracer.start_span(name, context, attributes=prefixed, start_time=begin_ns)
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, set_span_in_context(span))
        return OpenSpan(span, carrier.get(TRACEPARENT, ""))

    def record(
        self, name: str, begin_ns: int, end_ns: int, *, parent: str = "", **attributes: str | int | float
    ) -> str:
        """Record a span that has ended; return its traceparent."""
        return self.begin(name, begin_ns, parent=parent, **attributes).end(max(begin_ns, end_ns))

    def close(self) -> None:
        """Send the remaining spans, for CLOSE_SECONDS at most."""
        closing = threading.Thread(target=self._provider.shutdown, name="tracing-close", daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)


def own_version() -> str:
    """The installed version of EmberEye; "unknown" if only its source is there."""
    try:
        return version("embereye")
    except PackageNotFoundError:
        return "unknown"


def open_tracer(service: str, **attributes: str) -> Tracer | None:
    """A tracer if the environment requests one; None if not, or if that fails, which is logged."""
    variable = next((name for name in VARIABLES if os.environ.get(name)), "")
    if not variable:
        return None
    try:
        return Tracer(service, attributes)
    except ImportError as error:
        why = f"{error}; install embereye[otel], or unset it"
    except Exception as error:  # the library raises many kinds of errors for its variables
        why = f"OpenTelemetry does not start with its variables: {error}"
    logger.error("%s is set, but alarms are not traced: %s", variable, why)
    return None
