"""What a sidecar's metrics say of its settings; asked of a real sidecar's page."""

from aiohttp import web

from sagesched.settings import Settings, digest
from sagesched_operator.seen import Running
from sagesched_operator.sidecars import Sidecars, parsed
from sagesched_sidecar.live import LiveSettings
from sagesched_sidecar.settings_file import Loaded, Source
from sagesched_sidecar.telemetry import Telemetry


def page() -> bytes:
    live = LiveSettings(Source(None), Loaded.without_file(Settings()))
    telemetry = Telemetry()
    telemetry.configured(live.now, live.last)
    return telemetry.exposition()


def test_a_real_page_is_read() -> None:
    assert parsed(page()) == Running(digest(Settings()), True)
    refused = page().replace(b"last_reload_successful 1", b"last_reload_successful 0")
    assert parsed(refused) == Running(digest(Settings()), False)
    assert parsed(b"# nothing here\n") is None


async def test_who_does_not_answer_is_a_fact() -> None:
    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=page())

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        async with Sidecars(port=runner.addresses[0][1]) as sidecars:
            found = await sidecars.running(["127.0.0.1", None, "127.0.0.2"])
    finally:
        await runner.cleanup()
    assert found == [Running(digest(Settings()), True), None, None]
