"""History from a file."""

import json
import logging

import numpy as np

from sagesched.gittins import Stopping
from sagesched.ranking import Ranking
from sagesched.request import Request
from sagesched.settings import Settings
from sagesched_sidecar.seed import learn_from_file


class Embedder:
    name, dimensions, blocking = "one", 2, False

    def embed(self, text):
        return np.array([1.0, 0.0], dtype=np.float32)


def test_good_lines_are_learnt_and_bad_ones_are_named_by_number(tmp_path, caplog):
    rows = [
        json.dumps({"prompt": "a", "output_tokens": 10, "model": "m", "unknown": 1}).encode(),
        b"not json",
        json.dumps({"prompt": "a", "output_tokens": 0}).encode(),
        b"",
        b'{"prompt": "\xff", "output_tokens": 3}',
        json.dumps(
            {"prompt": "b", "output_tokens": 20, "censored": True, "prompt_tokens": 7, "max_tokens": 20}
        ).encode(),
    ]
    file = tmp_path / "seed.jsonl"
    file.write_bytes(b"\n".join(rows))
    ranking = Ranking(Settings(), stopping=Stopping.NEVER, dimensions=2)
    with caplog.at_level(logging.WARNING):
        assert learn_from_file(file, ranking, Embedder()) == (2, 3)
    window = ranking.predictor.window
    assert len(window) == 2
    assert (window.output_tokens[:2].tolist(), window.censored[:2].tolist()) == ([10, 20], [False, True])
    assert [record.line for record in caplog.records] == [2, 3, 5]


def test_lines_without_a_model_predict_for_every_model(tmp_path):
    file = tmp_path / "seed.jsonl"
    file.write_text("".join(json.dumps({"prompt": "a", "output_tokens": 70}) + "\n" for _ in range(40)))
    ranking = Ranking(Settings(), stopping=Stopping.NEVER, dimensions=2)
    learn_from_file(file, ranking, Embedder())
    ticket = ranking.admit(Request(id="r", model="any"), Embedder().embed("a"), 0.0)
    assert len(ticket.prediction.neighbours.rows) > 10
    assert abs(ticket.prediction.distribution.mean() - 70) < 10
