"""The vendors' own clients, through the sidecar, against a real engine."""

from typing import Any

import anthropic
import openai
from engine_asks import base
from real_engine import MODEL, RealEngine

ASKED: Any = [{"role": "user", "content": "Name three rivers."}]
TOKENS = 24


async def test_the_openai_client(fcfs: RealEngine, before: Any) -> None:
    sidecar = await before(fcfs.url)
    async with openai.AsyncOpenAI(base_url=f"{base(sidecar)}/v1", api_key="none", max_retries=0) as client:
        asked: Any = {"model": MODEL, "messages": ASKED, "max_tokens": TOKENS, "temperature": 0}
        whole = await client.chat.completions.create(**asked)
        chunks = [chunk async for chunk in await client.chat.completions.create(**asked, stream=True)]
        counted = [
            chunk
            async for chunk in await client.chat.completions.create(
                **asked, stream=True, stream_options={"include_usage": True}
            )
        ]
        response = await client.responses.create(model=MODEL, input="The sea", max_output_tokens=TOKENS, temperature=0)
    text = whole.choices[0].message.content
    assert text
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    assert all(chunk.usage is None for chunk in chunks)
    assert counted[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert response.usage is not None
    assert 0 < response.usage.output_tokens <= TOKENS
    window = sidecar.gate.ranking.predictor.window
    assert window.output_tokens[:3].tolist() == [whole.usage.completion_tokens] * 3
    assert len(window) == 4


async def test_the_anthropic_client(fcfs: RealEngine, before: Any) -> None:
    sidecar = await before(fcfs.url)
    async with anthropic.AsyncAnthropic(base_url=base(sidecar), api_key="none", max_retries=0) as client:
        asked: Any = {"model": MODEL, "messages": ASKED, "max_tokens": TOKENS, "extra_body": {"temperature": 0}}
        whole = await client.messages.create(**asked)
        async with client.messages.stream(**asked) as stream:
            text = "".join([part async for part in stream.text_stream])
            last = await stream.get_final_message()
    assert text == whole.content[0].text != ""
    assert last.usage.output_tokens == whole.usage.output_tokens
    window = sidecar.gate.ranking.predictor.window
    assert window.output_tokens[:2].tolist() == [whole.usage.output_tokens] * 2
