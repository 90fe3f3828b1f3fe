"""The answers of /v1/responses: one message item, as a whole or as numbered events."""

from typing import Any

import msgspec

from sagesched_sim.surfaces.ask import Ask, Piece, Stamp, Text


class ResponsesWriter:
    """Writes one response."""

    def __init__(self, ask: Ask, stamp: Stamp, text: Text) -> None:
        self._ask = ask
        self._stamp = stamp
        self._text = text
        self._item_id = f"msg_{stamp.id}"
        self._number = 0
        self._opened = False
        self._last = Piece(0, 0, 0)
        # A delta is the same in every event but for its text and its number.
        self._delta_head = b'event: response.output_text.delta\ndata: {"content_index":0,"delta":"'
        self._delta_tail = (
            b'","item_id":' + msgspec.json.encode(self._item_id) + b',"logprobs":[],"output_index":0,"sequence_number":'
        )

    def whole(self, endings: list[Piece]) -> bytes:
        """The JSON of a complete response."""
        return msgspec.json.encode(self._final(endings[0]))

    def opening(self) -> bytes:
        """The response is announced before any token is there."""
        started = self._response("in_progress", [], None)
        return self._event("response.created", {"response": started}) + self._event(
            "response.in_progress", {"response": started}
        )

    def piece(self, piece: Piece) -> bytes:
        """One delta; the first is preceded by the events that open the item and its part."""
        opened = b"" if self._opened else self._open_item()
        self._opened = True
        self._last = piece
        text = self._text(0, piece.begin, piece.end)
        delta = b"%s%s%s%d%s" % (
            self._delta_head,
            text,
            self._delta_tail,
            self._number,
            b',"type":"response.output_text.delta"}\n\n',
        )
        self._number += 1
        return opened + delta

    def closing(self) -> bytes:
        """The events that close part, item and response. The last is `response.completed`, also where a cap cut it."""
        text = self._text(0, 0, self._last.end).decode()
        at = {"item_id": self._item_id, "output_index": 0, "content_index": 0}
        item = self._item(text, "completed")
        return (
            self._event("response.output_text.done", at | {"logprobs": [], "text": text})
            + self._event("response.content_part.done", at | {"part": item["content"][0]})
            + self._event("response.output_item.done", {"item": item, "output_index": 0})
            + self._event("response.completed", {"response": self._final(self._last)})
        )

    def _open_item(self) -> bytes:
        item = self._item(None, "in_progress")
        part = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
        at = {"content_index": 0, "item_id": self._item_id, "output_index": 0}
        return self._event("response.output_item.added", {"item": item, "output_index": 0}) + self._event(
            "response.content_part.added", at | {"part": part}
        )

    def _event(self, kind: str, fields: dict[str, Any]) -> bytes:
        event = fields | {"sequence_number": self._number, "type": kind}
        self._number += 1
        return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(event))

    def _item(self, text: str | None, status: str) -> dict[str, Any]:
        part: dict[str, Any] = {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
        return {
            "id": self._item_id,
            "content": [] if text is None else [part],
            "role": "assistant",
            "status": status,
            "type": "message",
            "phase": None,
        }

    def _final(self, ending: Piece) -> dict[str, Any]:
        text = self._text(0, 0, ending.end).decode()
        status = "incomplete" if ending.finish_reason == "length" else "completed"
        return self._response(status, [self._item(text, "completed")], ending.end)

    def _usage(self, output_tokens: int) -> dict[str, Any]:
        input_tokens = self._ask.prompt_tokens
        return {
            "input_tokens": input_tokens,
            "input_tokens_details": {
                "cached_tokens": 0,
                "cache_write_tokens": 0,
                "input_tokens_per_turn": [],
                "cached_tokens_per_turn": [],
            },
            "output_tokens": output_tokens,
            "output_tokens_details": {
                "reasoning_tokens": 0,
                "tool_output_tokens": 0,
                "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": input_tokens + output_tokens,
        }

    def _response(self, status: str, output: list[dict[str, Any]], output_tokens: int | None) -> dict[str, Any]:
        fields: dict[str, Any] = {
            "id": "",
            "created_at": self._stamp.created_s,
            "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
            "instructions": None,
            "metadata": None,
            "model": self._stamp.model,
            "object": "response",
            "output": output,
            "parallel_tool_calls": True,
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": [],
            "top_p": 1.0,
            "background": False,
            "max_output_tokens": self._stamp.max_tokens,
            "max_tool_calls": None,
            "previous_response_id": None,
            "prompt": None,
            "reasoning": None,
            "service_tier": "auto",
            "status": status,
            "text": None,
            "top_logprobs": None,
            "truncation": "disabled",
            "usage": None if output_tokens is None else self._usage(output_tokens),
            "user": None,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "kv_transfer_params": None,
            "ec_transfer_params": None,
            "input_messages": None,
            "output_messages": None,
        }
        return fields | self._ask.echo
