"""Predictions and explanations as messages."""

from collections.abc import Iterable, Mapping

from sagesched.explanation import QUANTILES
from sagesched.lengths import LengthDistribution
from sagesched.predictor import Prediction
from sagesched_pb.v1 import prediction_pb2 as wire
from sagesched_pb.v1 import scheduling_pb2 as calls

MAX_ATOMS = 256


def predicted(prediction: Prediction, trouble: str | None) -> calls.PredictResponse:
    """What Predict answers."""
    return calls.PredictResponse(
        distribution=_distribution(prediction.distribution),
        levels=levels((level.name, level.share, level.samples) for level in prediction.levels),
        source=prediction.source,
        trouble=trouble or "",
    )


def levels(found: Iterable[tuple[str, float, float]]) -> list[wire.Level]:
    """Name, share and samples of each."""
    return [wire.Level(name=name, share=share, samples=samples) for name, share, samples in found]


def quantiles(found: Mapping[float, float]) -> list[wire.Quantile]:
    """Tokens by probability."""
    return [wire.Quantile(probability=q, tokens=tokens) for q, tokens in found.items()]


def _distribution(lengths: LengthDistribution) -> wire.Distribution:
    few = lengths.compress(MAX_ATOMS)
    pairs = zip(few.tokens.tolist(), few.weights.tolist(), strict=True)
    return wire.Distribution(
        atoms=[wire.Atom(tokens=tokens, weight=weight) for tokens, weight in pairs],
        quantiles=quantiles({q: lengths.quantile(q) for q in QUANTILES}),
        mean_tokens=lengths.mean(),
    )
