"""Laws of the predicted peak: it is what a step-by-step simulation finds."""

from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.kv import predicted_peak_tokens

LAW = settings(max_examples=80, deadline=None)
running = st.lists(st.tuples(st.integers(0, 500), st.integers(0, 60)), min_size=1, max_size=12)


def simulated(of: list[tuple[int, int]]) -> int:
    """Every step, each request grows by one token; those with nothing more to come then free what they hold."""
    alive, peak = list(of), sum(held for held, _ in of)
    while alive:
        peak = max(peak, sum(held for held, _ in alive))
        alive = [(held + 1, ahead - 1) for held, ahead in alive if ahead > 0]
    return peak


@LAW
@given(running)
def test_it_is_the_peak_of_a_simulation(of: list[tuple[int, int]]) -> None:
    assert predicted_peak_tokens(*zip(*of, strict=True)) == simulated(of)


@LAW
@given(running, st.randoms(use_true_random=False))
def test_the_order_of_the_requests_does_not_matter(of: list[tuple[int, int]], rng: object) -> None:
    shuffled = list(of)
    rng.shuffle(shuffled)
    assert predicted_peak_tokens(*zip(*shuffled, strict=True)) == predicted_peak_tokens(*zip(*of, strict=True))


@LAW
@given(running, st.integers(0, 500), st.integers(0, 60))
def test_one_more_never_lowers_it_and_bounds_hold(of: list[tuple[int, int]], held: int, ahead: int) -> None:
    peak = predicted_peak_tokens(*zip(*of, strict=True))
    assert predicted_peak_tokens(*zip(*[*of, (held, ahead)], strict=True)) >= peak
    assert sum(h for h, _ in of) <= peak <= sum(h + a for h, a in of)


def test_by_hand() -> None:
    assert predicted_peak_tokens([], []) == 0
    assert predicted_peak_tokens([7.0], [3.0]) == 10
    assert predicted_peak_tokens([10.0, 10.0], [1.0, 5.0]) == 22, "both at 11, when the first ends"
    assert predicted_peak_tokens([2.0, 2.0], [1.0, 50.0]) == 52, "the long one alone"
