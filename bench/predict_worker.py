"""Measures prediction on one core; a process of its own, so that numpy reads OPENBLAS_NUM_THREADS before it starts.

Reads its setting as JSON from standard input and writes seconds, part by part, to standard output.
"""

import gc
import itertools
import json
import os
import sys
import time
from typing import Any

from bench.prompts import Prompts

from sagesched.embed import StaticEmbedder
from sagesched.features import features_of
from sagesched.gittins import Stopping
from sagesched.history import Group
from sagesched.policy import Belief, policy_of
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request
from sagesched.settings import Settings

clock = time.perf_counter
MODEL = "bench"


def request_of(number: int, prompt: str) -> Request:
    """A request whose features are read from the prompt."""
    features = features_of(prompt, max_tokens=2048)
    return Request(
        id=f"r{number}", model=MODEL, prompt_tokens=prompt.count(" ") + 1, arrival_s=number * 0.1, features=features
    )


class Bench:
    """A full window, and what is done to one prompt after another."""

    def __init__(self, seed: int, rows: int, stopping: Stopping) -> None:
        self.settings = Settings()
        self.stopping = stopping
        self.prompts = Prompts(seed)
        self.embedder = StaticEmbedder.load()
        self.ranking = Ranking(self.settings, stopping=stopping, dimensions=self.embedder.dimensions)
        self.ids = itertools.count()
        self.neighbours: list[int] = []
        for _ in range(rows):
            topic, prompt = self.prompts.draw_of_any_length()
            request = request_of(next(self.ids), prompt)
            outcome = Outcome(output_tokens=self.prompts.output_tokens(topic))
            self.ranking.learn(request, self.embedder.embed(prompt), outcome)

    def whole(self, topic: int, prompt: str) -> dict[str, float]:
        """One request through everything, as a host does it, and then its end, from which history learns."""
        number = next(self.ids)
        began = clock()
        request = request_of(number, prompt)
        read = clock()
        vector = self.embedder.embed(prompt)
        embedded = clock()
        ticket = self.ranking.admit(request, vector, request.arrival_s)
        admitted = clock()
        self.neighbours.append(int(ticket.prediction.neighbours.rows.size))
        self.ranking.start(request.id, request.arrival_s)
        started = clock()
        self.ranking.finish(request.id, Outcome(output_tokens=self.prompts.output_tokens(topic)), request.arrival_s + 1)
        finished = clock()
        return {
            "whole": admitted - read,
            "features": read - began,
            "embed": embedded - read,
            "admit": admitted - embedded,
            "finish": finished - started,
        }

    def parts(self, _: int, prompt: str) -> dict[str, float]:
        """What `admit` consists of, each called by itself."""
        request, vector = request_of(next(self.ids), prompt), self.embedder.embed(prompt)
        scheduling, predictor = self.settings.scheduling, self.ranking.predictor
        policy = policy_of(scheduling)
        began = clock()
        group = Group(request.model, request.tenant)
        predictor.window.nearest(group, vector, scheduling.neighbours, scheduling.similarity_threshold)
        searched = clock()
        prediction = predictor.predict(request, vector)
        predicted = clock()
        policy.score(Belief(request, prediction.distribution, self.stopping, scheduling))
        scored = clock()
        search = searched - began
        return {"search": search, "distribution": predicted - searched - search, "index": scored - predicted}


def main() -> None:
    """Measure as told on standard input."""
    given: dict[str, Any] = json.load(sys.stdin)
    os.sched_setaffinity(0, {given["core"]})
    bench = Bench(given["seed"], given["rows"], Stopping(given["stopping"]))
    for _ in range(given["warm_up"]):
        bench.whole(*bench.prompts.draw())
    bench.neighbours.clear()
    seconds: dict[str, list[float]] = {}
    for measure in (bench.whole, bench.parts):
        drawn = [bench.prompts.draw() for _ in range(given["count"])]
        gc.collect()
        for topic, prompt in drawn:
            for name, value in measure(topic, prompt).items():
                seconds.setdefault(name, []).append(value)
    print(json.dumps({"seconds": seconds, "neighbours": bench.neighbours, "embedder": bench.embedder.name}))


if __name__ == "__main__":
    main()
