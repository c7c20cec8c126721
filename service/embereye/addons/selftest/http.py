"""Routes of self-tests: the tests with their newest results, and their start by people."""

from aiohttp import web

from embereye.addons.selftest.keeper import SelfTestKeeper, words
from embereye.hub.http.access.authenticate import PRINCIPAL
from embereye.hub.http.openapi.parts import CHANGES, NANOSECONDS, WORD, answer, list_of, part, record
from embereye.hub.http.route import Route
from embereye.hub.roles import Role

NAME = part("test", {"type": "string", "pattern": "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"})
TEST = record(
    {
        "test": WORD, "fleet": WORD, "device": WORD, "outcome": WORD, "detail": WORD, "startedNs": NANOSECONDS,
        "dueNs": NANOSECONDS, "failed": {"type": "boolean"},
    }
)  # fmt: skip


class SelfTestRoutes:
    """Serves self-tests."""

    def __init__(self, tests: SelfTestKeeper) -> None:
        self._tests = tests

    @Route(
        "GET", "/v1/selftests", Role.VIEWER, "The self-tests with their newest results",
        {200: answer("outcome: seen, not seen, not run, running, or empty before the first run; a time of 0: none",
                     record({"selftests": list_of(TEST)}))},
    )  # fmt: skip
    async def _list(self, _: web.Request) -> web.Response:
        listed = []
        for name, result in self._tests.results().items():
            test = self._tests.options.tests[name]
            outcome = "running" if self._tests.is_waiting(name) else result.outcome if result else ""
            listed.append({
                "test": name, "fleet": test.fleet, "device": test.device, "outcome": outcome,
                "detail": words(test, result) if result else "", "startedNs": str(result.started_ns if result else 0),
                "dueNs": str(self._tests.next_ns(name)), "failed": result is not None and result.failed,
            })  # fmt: skip
        return web.json_response({"selftests": listed})

    @Route(
        "POST", "/v1/selftests/{test}/run", Role.OPERATOR, "Run a self-test next",
        {202: answer("it runs, or waits for another one", record({}))},
        takes=[NAME],
        fails=(*CHANGES, 404, 409),
    )  # fmt: skip
    async def _run(self, request: web.Request) -> web.Response:
        self._tests.start(request[PRINCIPAL], request.match_info["test"])
        return web.json_response({}, status=202)
