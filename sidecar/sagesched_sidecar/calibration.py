"""How good predictions are lately, as metrics. The scoreboard bounds the models; levels and deciles are few."""

from collections.abc import Iterable, Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sagesched.scoreboard import Calibration, Scoreboard


class CalibrationCollector(Collector):
    """Reads the scoreboard when it is scraped."""

    def __init__(self, scoreboard: Scoreboard) -> None:
        self._scoreboard = scoreboard

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Each model's skill, scores, coverage and PIT now, and whether any of them has fallen back."""
        found = list(self._scoreboard.calibrations())
        yield from _of_levels(found)
        coverage = _family("coverage", "Share of lengths between the predicted 10th and 90th percentile", "model")
        pit = _family("pit_share", "Share of lengths in each tenth of their predictions", "model", "decile")
        scored = _family("scored", "Requests whose prediction was scored", "model")
        for model, calibration in found:
            coverage.add_metric((model,), calibration.coverage_80)
            scored.add_metric((model,), calibration.scored)
            for decile, share in enumerate(calibration.pit_deciles):
                pit.add_metric((model, str(decile)), share)
        yield from (coverage, pit, scored)
        active = GaugeMetricFamily("sagesched_fallback_active", "Models in a lasting fallback", labels=("reason",))
        active.add_metric(("skill",), sum(calibration.fallback is not None for _, calibration in found))
        yield active


def _of_levels(found: Iterable[tuple[str, Calibration]]) -> tuple[Metric, ...]:
    skill = _family("skill", "1 - CRPS over the global level's on the same requests", "model", "level")
    crps = _family("crps_tokens", "Mean continuous ranked probability score, in tokens", "model", "level")
    alone = _family("level_alone", "1 for the level that is used by itself", "model", "level")
    for model, calibration in found:
        for level, score in calibration.levels.items():
            skill.add_metric((model, level), score.skill)
            crps.add_metric((model, level), score.crps_tokens)
        if calibration.fallback is not None:
            alone.add_metric((model, calibration.fallback), 1)
    return skill, crps, alone


def _family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"sagesched_prediction_{name}", text, labels=labels)
