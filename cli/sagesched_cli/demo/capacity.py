"""How much the engine can serve, by its own steps: no wall clock, so the same on every machine. Pure."""

from collections.abc import Sequence

from sagesched_sim.engine import Engine
from sagesched_sim.options import Options
from sagesched_sim.profile import profile_named
from sagesched_sim.prompt import chat_template, count_tokens
from sagesched_sim.sequence import EngineRequest
from sagesched_sim.workload.exchange import Exchange


def capacity_rps(exchanges: Sequence[Exchange], *, profile: str, slots: int, kv_tokens: int) -> float:
    """Completions per engine second, first come first served, with every exchange submitted at once.

    Raises ValueError when the profile is unknown or an exchange does not fit into the engine.
    """
    options = Options(profile=profile, max_num_seqs=slots, kv_tokens=kv_tokens)
    limits = options.limits()
    engine = Engine(profile_named(profile), limits)
    for number, exchange in enumerate(exchanges):
        engine.submit(
            EngineRequest(
                id=str(number),
                prompt_tokens=count_tokens(chat_template([("user", exchange.prompt)])),
                output_tokens=exchange.output_tokens,
                max_tokens=limits.max_model_len,
            )
        )
    makespan_s = 0.0
    while engine.has_work:
        makespan_s += engine.step().duration_s
    return len(exchanges) / makespan_s
