"""Laws of the preemption rule: when nobody gives way whatever the numbers, when somebody does, and what moves it."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.preemption import LOOK, Decision, Line, Pace, Pressure, Runner, Waiter, choose
from sagesched.settings import Preemption
from sagesched.waiting import Rank

LAW = settings(max_examples=150, deadline=None)
pressures = st.sampled_from(Pressure)
short, long = st.floats(1, 1e3), st.floats(1, 1e6)
paces = st.builds(
    Pace,
    slots=st.integers(1, 64),
    kv_tokens=st.floats(1e3, 1e6),
    token_s=st.floats(1e-3, 0.1),
    recompute_token_s=st.floats(1e-7, 1e-4),
    swap_token_s=st.floats(0, 1e-4),
)
rules = st.builds(Preemption, hysteresis=st.floats(0, 2), max_per_request=st.integers(0, 4))


@st.composite
def waiters(draw: st.DrawFn, amounts: st.SearchStrategy[float] = short) -> Waiter:
    score = draw(amounts)
    rank = Rank(draw(st.sampled_from((0, 0, 0, 1))), score, 0.0, f"w{draw(st.integers(0, 10**6))}")
    return Waiter(rank, score, draw(amounts), draw(amounts), draw(short), draw(st.floats(0.25, 4)))


@st.composite
def runners(draw: st.DrawFn) -> Runner:
    like = draw(waiters(long))
    return Runner(
        *like[:4],
        held_tokens=like.need_tokens,
        recompute_tokens=draw(st.floats(0, 1e4)),
        swap_tokens=draw(st.floats(0, 1e4)),
        weight=like.weight,
        preemptions=draw(st.integers(0, 3)),
        promoted=draw(st.sampled_from((False, False, False, True))),
    )


class Scene(NamedTuple):
    """What `choose` is asked with. Runners have more to do than waiters, so that somebody gives way in many scenes."""

    running: list[Runner]
    line: Line
    pressure: Pressure
    pace: Pace
    rule: Preemption
    free_tokens: float

    def choose(self) -> Decision:
        return choose(self.running, self.line, self.pressure, self.pace, self.rule, free_tokens=self.free_tokens)


scenes = st.builds(
    Scene,
    st.lists(runners(), max_size=12).map(sorted),
    st.lists(waiters(), max_size=30).map(lambda some: Line(sorted(some))),
    pressures,
    paces,
    rules,
    st.floats(0, 1e3),
)


@LAW
@given(scenes)
def test_nobody_gives_way_to_nobody(scene: Scene) -> None:
    assert scene._replace(line=Line([])).choose() == Decision("nobody")


@LAW
@given(scenes)
def test_switched_off_it_takes_no_place(scene: Scene) -> None:
    assert scene._replace(rule=Preemption(enabled=False)).choose() == Decision("off")


@LAW
@given(scenes)
def test_who_gives_way_stands_behind_by_the_hysteresis_below_its_cap_and_for_a_gain(scene: Scene) -> None:
    decision = scene.choose()
    assert bool(decision.victims) == (decision.reason == scene.pressure.value)
    for victim in decision.victims:
        first = scene.line.waiters[0]
        assert victim in scene.running
        assert first.rank < victim.rank
        assert first.score * (1 + scene.rule.hysteresis) < victim.score
        assert victim.preemptions < scene.rule.max_per_request
        assert not victim.promoted
        assert decision.gain > decision.cost


@LAW
@given(scenes)
def test_no_more_give_way_than_the_first_in_line_needs(scene: Scene) -> None:
    victims = scene.choose().victims
    if scene.pressure is Pressure.SLOTS:
        assert len(victims) <= 1
    elif victims:
        needed = scene.line.waiters[0].need_tokens - scene.free_tokens
        freed = [victim.held_tokens for victim in victims]
        assert sum(freed) >= needed
        assert len(victims) == 1 or sum(freed[:-1]) < needed


@LAW
@given(runners(), waiters(), pressures, paces, st.floats(0, 3))
def test_a_resume_that_costs_nothing_pays_where_gap_and_line_are_large(
    victim: Runner, first: Waiter, pressure: Pressure, pace: Pace, hysteresis: float
) -> None:
    gap = 2 * (1 + hysteresis)
    first = first._replace(tokens=1000.0, cost=pace.kv_tokens * 1000 / pace.slots, weight=1.0)
    line = [first._replace(rank=first.rank._replace(id=f"{number:04}")) for number in range(8 * pace.slots)]
    victim = victim._replace(
        rank=first.rank._replace(key=first.rank.key + 1),
        score=first.score * gap,
        tokens=first.tokens * gap,
        cost=first.cost * gap,
        held_tokens=first.need_tokens,
        recompute_tokens=0.0,
        swap_tokens=0.0,
        weight=1.0,
        preemptions=0,
        promoted=False,
    )
    decision = choose([victim], Line(line), pressure, pace, Preemption(hysteresis=hysteresis))
    assert decision.victims == (victim,)


@LAW
@given(scenes)
def test_the_worst_that_run_are_enough(scene: Scene) -> None:
    weight = sum(runner.weight for runner in scene.running)
    worst = scene.running[-LOOK:]
    asked = choose(
        worst,
        scene.line,
        scene.pressure,
        scene.pace,
        scene.rule,
        running_weight=weight,
        free_tokens=scene.free_tokens,
    )
    assert asked == scene.choose()


@LAW
@given(scenes, st.floats(1, 100))
def test_a_dearer_resume_makes_nobody_give_way_where_nobody_did(scene: Scene, times: float) -> None:
    pace = scene.pace
    dearer = pace._replace(recompute_token_s=pace.recompute_token_s * times, swap_token_s=pace.swap_token_s * times)
    assert scene.choose().victims or not scene._replace(pace=dearer).choose().victims


@LAW
@given(scenes, st.integers(-10, 10))
def test_in_another_unit_of_time_it_decides_the_same(scene: Scene, exponent: int) -> None:
    factor = 2.0**exponent
    pace = scene.pace
    scaled = pace._replace(
        token_s=pace.token_s * factor,
        recompute_token_s=pace.recompute_token_s * factor,
        swap_token_s=pace.swap_token_s * factor,
    )
    one, other = scene.choose(), scene._replace(pace=scaled).choose()
    assert (other.reason, other.victims) == (one.reason, one.victims)
    assert other.gain == pytest.approx(one.gain * factor)
    assert other.cost == pytest.approx(one.cost * factor)


@LAW
@given(runners(), waiters(), pressures, paces, rules)
def test_of_two_that_stand_as_they_stood_only_one_can_take_the_other_s_place(
    victim: Runner, taker: Waiter, pressure: Pressure, pace: Pace, rule: Preemption
) -> None:
    """So no place goes back without progress, however often is asked and whatever a resume costs."""
    taken = choose([victim], Line([taker]), pressure, pace, rule, free_tokens=taker.need_tokens - 1)
    back = Line([Waiter(*victim[:4], need_tokens=victim.held_tokens, weight=victim.weight)])
    runs = Runner(*taker[:4], taker.need_tokens, recompute_tokens=0.0, weight=taker.weight)
    retaken = choose([runs], back, pressure, pace, rule, free_tokens=victim.held_tokens - 1)
    assert not (taken.victims and retaken.victims)
