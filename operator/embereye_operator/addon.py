"""The interface of an add-on's part of the operator: its module `operator` has `build(context)`, which returns a Part.

The part runs beside the controller in each replica and writes only while `is_leading()`.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lightkube import AsyncClient
from prometheus_client.registry import Collector


@dataclass(frozen=True, kw_only=True)
class OperatorContext:
    """The operator, as its add-ons see it."""

    client: AsyncClient
    namespace: str  # of the release, with its hubs
    release: str  # names of its objects start with it
    is_leading: Callable[[], bool]
    is_selected: Callable[[Mapping[str, str]], bool]  # true for the labels of the operator's objects


@dataclass(frozen=True, kw_only=True)
class OperatorPart:
    """An add-on's part of the operator."""

    name: str
    run: Callable[[], Coroutine[Any, Any, None]]  # until cancelled
    collectors: Sequence[Collector] = ()  # of metrics
