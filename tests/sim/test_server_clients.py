"""The real openai and anthropic clients against the server, on all four surfaces."""

import asyncio
from typing import Any

import aiohttp
import anthropic
import openai
import pytest

MODEL = "sagesched-sim"
PROMPT = "Describe the river in spring."
MESSAGES: list[Any] = [{"role": "user", "content": PROMPT}]


def scripted(tokens: int) -> dict[str, Any]:
    return {"vllm_xargs": {"sim_output_tokens": tokens}}


async def test_chat_streams_what_it_would_answer_whole(start_server: Any) -> None:
    _, url = await start_server()
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        whole = await client.chat.completions.create(model=MODEL, messages=MESSAGES, extra_body=scripted(25))
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            stream=True,
            stream_options={"include_usage": True},
            extra_body=scripted(25),
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert len(text.split(" ")) == 25
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks[1:-1]] == [None] * 24 + ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 25
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 25


@pytest.mark.parametrize("interval", [1, 7])
async def test_chat_with_choices_and_usage_in_every_chunk(start_server: Any, interval: int) -> None:
    _, url = await start_server(stream_interval=interval)
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        stream = await client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            n=3,
            max_completion_tokens=15,
            stream=True,
            stream_options={"include_usage": True, "continuous_usage_stats": True},  # type: ignore[typeddict-unknown-key]
            extra_body=scripted(20),
        )
        chunks = [chunk async for chunk in stream]
    ends = {chunk.choices[0].index: chunk for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason}
    assert sorted(ends) == [0, 1, 2]
    assert {chunk.choices[0].finish_reason for chunk in ends.values()} == {"length"}
    assert all(chunk.usage is not None for chunk in chunks)
    assert [chunk.usage.completion_tokens for chunk in ends.values() if chunk.usage] == [15, 15, 15]
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 45
    per_choice = 1 + (15 if interval == 1 else 3)
    assert len(chunks) == 3 * per_choice + 1


async def test_completions(start_server: Any) -> None:
    _, url = await start_server()
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        several = await client.completions.create(model=MODEL, prompt=["one", "and two"], n=2, extra_body=scripted(4))
        default = await client.completions.create(model=MODEL, prompt=PROMPT, extra_body={"ignore_eos": True})
        ids = await client.completions.create(model=MODEL, prompt=[11, 12, 13], extra_body=scripted(2))
        stream = await client.completions.create(model=MODEL, prompt=PROMPT, stream=True, extra_body=scripted(6))
        chunks = [chunk async for chunk in stream]
    assert [choice.index for choice in several.choices] == [0, 1, 2, 3]
    assert several.usage is not None
    assert (several.usage.prompt_tokens, several.usage.completion_tokens) == (3, 16)
    assert default.usage is not None
    assert (default.usage.completion_tokens, default.choices[0].finish_reason) == (16, "length")
    assert ids.usage is not None
    assert ids.usage.prompt_tokens == 3
    assert len("".join(chunk.choices[0].text for chunk in chunks).split(" ")) == 6
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_responses(start_server: Any) -> None:
    _, url = await start_server()
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client:
        whole = await client.responses.create(
            model=MODEL, input=PROMPT, instructions="Be brief.", extra_body=scripted(9)
        )
        cut = await client.responses.create(model=MODEL, input=MESSAGES, max_output_tokens=5, extra_body=scripted(9))
        async with client.responses.stream(
            model=MODEL, input=PROMPT, instructions="Be brief.", extra_body=scripted(9)
        ) as stream:
            events = [event async for event in stream]
            final = await stream.get_final_response()
    assert (whole.status, whole.instructions) == ("completed", "Be brief.")
    assert whole.usage is not None
    assert whole.usage.output_tokens == 9
    assert cut.status == "incomplete"
    assert cut.incomplete_details is not None
    assert cut.incomplete_details.reason == "max_output_tokens"
    assert final.output_text == whole.output_text
    assert [event.sequence_number for event in events] == list(range(len(events)))


async def test_messages(start_server: Any) -> None:
    _, url = await start_server()
    async with anthropic.AsyncAnthropic(base_url=url, api_key="none") as client:
        whole = await client.messages.create(
            model=MODEL, max_tokens=50, system="Be brief.", messages=MESSAGES, extra_body=scripted(8)
        )
        cut = await client.messages.create(model=MODEL, max_tokens=3, messages=MESSAGES, extra_body=scripted(8))
        async with client.messages.stream(
            model=MODEL, max_tokens=50, system="Be brief.", messages=MESSAGES, extra_body=scripted(8)
        ) as stream:
            text = "".join([piece async for piece in stream.text_stream])
            final = await stream.get_final_message()
        counted = await client.messages.count_tokens(model=MODEL, system="Be brief.", messages=MESSAGES)
    assert whole.content[0].type == "text"
    assert whole.content[0].text == text
    assert (whole.stop_reason, cut.stop_reason) == ("end_turn", "max_tokens")
    assert (whole.usage.output_tokens, final.usage.output_tokens, cut.usage.output_tokens) == (8, 8, 3)
    assert counted.input_tokens == whole.usage.input_tokens == final.usage.input_tokens


async def test_tokenize_agrees_with_usage(start_server: Any) -> None:
    server, url = await start_server()
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none") as client, aiohttp.ClientSession() as raw:
        chat = await client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=1)
        plain = await client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=1)
        models = await client.models.list()
        of_chat = await (await raw.post(f"{url}/tokenize", json={"messages": MESSAGES})).json()
        of_plain = await (await raw.post(f"{url}/tokenize", json={"prompt": PROMPT})).json()
    assert chat.usage is not None
    assert plain.usage is not None
    assert (of_chat["count"], of_plain["count"]) == (chat.usage.prompt_tokens, plain.usage.prompt_tokens)
    assert len(of_chat["tokens"]) == of_chat["count"]
    assert [model.id for model in models.data] == [MODEL]
    assert of_chat["max_model_len"] == server.options.limits().max_model_len


async def test_priority_decides_who_goes_first_where_the_policy_says_so(start_server: Any, until: Any) -> None:
    assert await order_of_answers(start_server, until, "priority") == ["high", "message", "header", "low"]


async def test_under_fcfs_a_priority_is_taken_and_ignored(start_server: Any, until: Any) -> None:
    assert await order_of_answers(start_server, until, "fcfs") == ["low", "high", "header", "message"]


async def order_of_answers(start_server: Any, until: Any, policy: str) -> list[str]:
    """Who is answered when, of four that waited for one place: by body, body, header over body, header alone."""
    server, url = await start_server(scheduling_policy=policy, max_num_seqs=1)
    engine = server.paced.engine
    done: list[str] = []
    async with aiohttp.ClientSession() as client:

        async def ask(
            name: str, max_tokens: int = 5, priority: int = 0, headers: Any = None, path: str = "/v1/completions"
        ) -> None:
            prompt = {"messages": [{"role": "user", "content": name}]} if path == "/v1/messages" else {"prompt": name}
            body = prompt | {"max_tokens": max_tokens, "ignore_eos": True, "priority": priority}
            async with client.post(url + path, json=body, headers=headers) as answer:
                assert answer.status == 200
                await answer.read()
                done.append(name)

        holds_the_place = asyncio.create_task(ask("holds", max_tokens=8000))
        await until(lambda: engine.running_count == 1)
        others = []
        for count, asked in enumerate(
            (
                ask("low", priority=7),
                ask("high", priority=-1, headers={"X-Vllm-Priority": "no number"}),
                ask("header", priority=-9, headers={"X-Vllm-Priority": "3"}),
                ask("message", priority=99, headers={"X-Vllm-Priority": "2"}, path="/v1/messages"),
            ),
            start=1,
        ):
            others.append(asyncio.create_task(asked))
            await until(lambda count=count: engine.waiting_count == count)
        holds_the_place.cancel()
        await asyncio.gather(*others)
    return done
