"""The synthetic traffic, the shipped embedder and a ranking: skill where prompts tell lengths, a fallback where not."""

from collections.abc import Sequence

import numpy as np
import pytest

from sagesched.embed import StaticEmbedder
from sagesched.features import features_of
from sagesched.gittins import Stopping
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request
from sagesched.scoreboard import MIN_SCORED, Calibration
from sagesched.scoring import MIXTURE
from sagesched.settings import Settings
from sagesched_sim.workload import sources
from sagesched_sim.workload.traffic import Traffic

MEASURED = 400


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    return sources.load("topics", 3, history=1500, requests=MEASURED)


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder.load()


def served(traffic: Traffic, embedder: StaticEmbedder, lengths: Sequence[int]) -> tuple[Calibration, list[int]]:
    """What the ranking says of its predictions in the end, and when they turned."""
    ranking = Ranking(Settings(), stopping=Stopping.NEVER, dimensions=embedder.dimensions)

    def request(name: str, prompt: str) -> Request:
        features = features_of(prompt, max_tokens=None)
        return Request(id=name, model="m", prompt_tokens=prompt.count(" ") + 1, features=features)

    for n, one in enumerate(traffic.history):
        known = Outcome(output_tokens=one.output_tokens)
        ranking.learn(request(f"h{n}", one.prompt), embedder.embed(one.prompt), known)
    turned = []
    for n, (one, tokens) in enumerate(zip(traffic.measured, lengths, strict=True), 1):
        asked = request(f"r{n}", one.prompt)
        ranking.admit(asked, embedder.embed(one.prompt), 0.0)
        ranking.start(asked.id, 0.0)
        if ranking.finish(asked.id, Outcome(output_tokens=tokens), 1.0).turn:
            turned.append(n)
    return dict(ranking.scoreboard.calibrations())["m"], turned


def test_prompts_that_tell_lengths_are_predicted_with_skill_and_calibrated(
    traffic: Traffic, embedder: StaticEmbedder
) -> None:
    found, turned = served(traffic, embedder, [one.output_tokens for one in traffic.measured])
    assert turned == []
    assert found.levels[MIXTURE].skill > 0.08
    assert found.levels[MIXTURE].skill >= max(score.skill for score in found.levels.values()) - 0.02
    assert found.coverage_80 == pytest.approx(0.8, abs=0.07)
    assert found.pit_deciles == pytest.approx([0.1] * 10, abs=0.07)


def test_answers_that_have_nothing_to_do_with_prompts_fall_back_and_stay_calibrated(
    traffic: Traffic, embedder: StaticEmbedder
) -> None:
    lengths = np.random.default_rng(3).permutation([one.output_tokens for one in traffic.measured]).tolist()
    found, turned = served(traffic, embedder, lengths)
    assert len(turned) == 1
    assert turned[0] <= MIN_SCORED + 60
    assert found.fallback in ("class", "global")
    assert found.coverage_80 == pytest.approx(0.8, abs=0.07)
