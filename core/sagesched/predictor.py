"""From a prompt to the distribution of its output length: a back-off chain over the history window.

Levels, most particular first: records above the similarity threshold; the nearest k; the records of the same class (the
amount of output asked for where the prompt names one, else the input length); all records of the model and tenant; a
fixed prior. Each level takes the share `n / (n + kappa)` of what the levels before it left over, `n` being its
effective number of samples, and the prior takes the rest. docs/adr/0002-back-off-chain.md has the figures behind the
constants.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sagesched.history import (
    NO_NEIGHBOURS,
    NO_NUMBER,
    Discount,
    Group,
    HistoryWindow,
    Neighbours,
    Rows,
    Vector,
    is_plain,
    length_class,
)
from sagesched.lengths import Atoms, FloatArray, LengthDistribution, product_limit
from sagesched.request import Features, Outcome, Request
from sagesched.settings import Scheduling


@dataclass(frozen=True, slots=True)
class Chain:
    """The constants of the chain."""

    similar: float = 2.0
    """kappa of the records above the threshold: samples at which they are trusted as much as all that comes after."""
    nearest: float = 3.0
    in_class: float = 30.0
    in_all: float = 10.0
    bandwidth: float = 0.06
    """Cosine over which a neighbour's weight falls by a factor e, from the nearest one down."""
    number_scale: float = 0.5
    """ln(asked / asked) over which a neighbour's weight falls by a factor e."""
    number_mismatch: float = 0.3
    """Weight of a neighbour that asks for an amount where the request does not, or the other way."""
    effort_mismatch: float = 0.1
    tools_mismatch: float = 0.3


BACKGROUND_ATOMS = 48
ENOUGH_RECORDS = 500
"""Of a model's own, from which on history that names no model is left alone."""
REFRESH_RECORDS = 64
REFRESH_SHARE = 0.02
"""What lies behind the neighbours is made anew once so many records, or that share of the window, were learnt."""
COARSE_ATOMS = 192
MAX_BACKGROUNDS = 1000

PRIOR = LengthDistribution(
    np.array([16.0, 48.0, 96.0, 160.0, 224.0, 288.0, 352.0, 448.0, 640.0, 1200.0]), np.full(10, 0.1)
)
"""With no history at all: a chat answer, half of them under 250 tokens, a tenth about 1,200."""


class Level(NamedTuple):
    """One level's part in a prediction."""

    name: str
    share: float
    samples: float
    atoms: Atoms | LengthDistribution

    @property
    def distribution(self) -> LengthDistribution:
        """What the level alone would predict."""
        if isinstance(self.atoms, LengthDistribution):
            return self.atoms
        return LengthDistribution.of_atoms(self.atoms.tokens, self.atoms.weights)


class Prediction(NamedTuple):
    """What is believed of one request's output length, in tokens of one choice, and why."""

    distribution: LengthDistribution
    levels: tuple[Level, ...]
    neighbours: Neighbours
    alone: str | None = None
    """The level that is used by itself, where the chain did worse lately than no neighbours at all (scoreboard.py)."""
    instead_of: LengthDistribution | None = None
    """What the whole chain says, then."""

    @property
    def source(self) -> str:
        """The level with the largest share, or the one used by itself."""
        return self.alone or max(self.levels, key=lambda level: level.share).name


def told_by(told: LengthDistribution) -> Prediction:
    """A prediction that another host made."""
    return Prediction(told, (Level("told", 1.0, 0.0, told),), NO_NEIGHBOURS)


class Predictor:
    """Predicts from a history window, and teaches it."""

    def __init__(self, settings: Scheduling, window: HistoryWindow, chain: Chain | None = None) -> None:
        self._settings = settings
        self._chain = chain or Chain()
        self.window = window
        self._backgrounds: dict[tuple[Group, int, Discount | None], _Background] = {}
        self._everything: dict[tuple[Group, Discount | None], _Everything] = {}

    def apply(self, settings: Scheduling, window_rows: int) -> bool:
        """Other settings from now on; whether what was predicted before would be predicted otherwise now."""
        before, self._settings = self._settings, settings
        forgotten = self.window.resize(window_rows) if window_rows != self.window.capacity else 0
        if forgotten:
            self._backgrounds.clear()
            self._everything.clear()
        return bool(forgotten) or (before.similarity_threshold, before.neighbours) != (
            settings.similarity_threshold,
            settings.neighbours,
        )

    def predict(
        self, request: Request, embedding: Vector | None, alone: str | None = None, *, trial: Discount | None = None
    ) -> Prediction:
        """The distribution of the request's output length. `embedding`: (dimensions,) unit float32; None when there is
        none, which leaves out the levels that need one. `alone`: the level to use by itself instead of them all.
        `trial`: as if that were made of older records."""
        group = self._group_of(request)
        near = NO_NEIGHBOURS
        if embedding is not None:
            near = self.window.nearest(group, embedding, self._settings.neighbours, self._settings.similarity_threshold)
        levels, left = _share_out(self._near_levels(request.features, near, trial))
        behind = self._background(group, length_class(request.prompt_tokens, request.features.asked_number), trial)
        parts = [(level.share, level.atoms) for level in levels]
        mixture = LengthDistribution.mix([*parts, (left, behind.distribution)])
        levels += [Level(one.name, left * one.share, one.samples, one.atoms) for one in behind.levels]
        chain = Prediction(mixture.truncate(request.features.max_tokens), tuple(levels), near)
        return chain if alone is None else _only(chain, alone, request.features.max_tokens)

    def _group_of(self, request: Request) -> Group:
        """The model's own history; while that is short, the history that names no model, where there is more of it."""
        own, unnamed = Group(request.model, request.tenant), Group("", request.tenant)
        return own if self.window.count(own) >= min(ENOUGH_RECORDS, self.window.count(unnamed)) else unnamed

    def learn(self, request: Request, embedding: Vector, outcome: Outcome) -> bool:
        """Remember how the request ended; whether there was need to (HistoryWindow.append)."""
        prompt_tokens = request.prompt_tokens if outcome.prompt_tokens is None else outcome.prompt_tokens
        row = self.window.append(
            Group(request.model, request.tenant),
            embedding,
            prompt_tokens=prompt_tokens,
            output_tokens=outcome.output_tokens,
            censored=outcome.censored,
            features=request.features,
        )
        return row is not None

    def forget(self, tenant: str) -> int:
        """Forget a tenant: how many records."""
        gone = self.window.forget(tenant)
        if gone:
            self._backgrounds.clear()
            self._everything.clear()
        return gone

    def changed(self, request: Request, discount: Discount) -> None:
        """Lengths of such requests have changed: that is to be made of older records from now on."""
        self.window.discount(self._group_of(request).model, discount)
        self._backgrounds.clear()
        self._everything.clear()

    def _near_levels(self, features: Features, near: Neighbours, trial: Discount | None) -> Iterator["_Estimate"]:
        """The levels that need an embedding."""
        if not near.rows.size:
            return
        alike: FloatArray = np.exp((near.similarities - near.similarities[0]) / self._chain.bandwidth)
        weights = alike * self._matches(features, near.rows) * self._aged(near.rows, trial)
        above = int(np.searchsorted(-near.similarities, -self._settings.similarity_threshold, side="right"))
        parts = (
            ("similar", self._chain.similar, slice(0, above)),
            ("nearest", self._chain.nearest, slice(above, None)),
        )
        for name, kappa, part in parts:
            rows = near.rows[part]
            if rows.size:
                samples = _effective(weights[part]) * float(weights[part].sum() / alike[part].sum())
                yield _Estimate(name, kappa, samples, self._samples(rows, weights[part], trial))

    def _matches(self, features: Features, rows: Rows) -> FloatArray:
        """A weight in (0, 1] for each record: whether it asked for as much, in the same way. Records that do not match
        count as fewer samples too, so that one prompt with another number falls back to its class."""
        window, chain = self.window, self._chain
        weights: FloatArray = np.ones(rows.size)
        if is_plain(features) and window.plain[rows].all():
            return weights
        asked = window.asked_number[rows]
        named = asked != NO_NUMBER
        if features.asked_number is None:
            weights[named] *= chain.number_mismatch
        else:
            apart = np.abs(np.log(np.where(named, asked, 1.0) / features.asked_number))
            weights *= np.where(named, np.exp(-apart / chain.number_scale), chain.number_mismatch)
        weights[window.tools[rows] != features.tools] *= chain.tools_mismatch
        weights[window.effort[rows] != window.effort_number(features.effort)] *= chain.effort_mismatch
        return weights

    def _aged(self, rows: Rows, trial: Discount | None) -> FloatArray:
        """A weight in (0, 1] for each record: less where lengths have changed since."""
        weights = self.window.weight[rows]
        return weights if trial is None else weights * np.where(self.window.turn[rows] < trial.before, trial.weight, 1)

    def _samples(self, rows: Rows, weights: FloatArray, trial: Discount | None) -> Atoms:
        lengths = self.window.output_tokens[rows]
        if trial is not None:
            lengths = lengths * np.where(self.window.turn[rows] < trial.before, trial.factor, 1.0)
        return product_limit(np.maximum(lengths, 1.0), self.window.censored[rows], np.maximum(weights, 1e-9))

    def _background(self, group: Group, own_class: int, trial: Discount | None) -> "_Background":
        """What is left when no prompt is near: class, global and prior in one, made anew as records are learnt."""
        known = self._backgrounds.get((group, own_class, trial))
        if known is not None and self.window.learnt < known.due:
            return known
        rows = self.window.rows(group)
        alike = rows[self.window.length_class[rows] == own_class]
        estimates: list[_Estimate] = []
        coarse: list[LengthDistribution] = []
        if alike.size:
            estimates.append(self._plain("class", self._chain.in_class, alike, trial))
            coarse.append(estimates[-1].distribution.compress(COARSE_ATOMS))
        if rows.size:
            everything = self._all_of(group, rows, trial)
            estimates.append(everything.estimate)
            coarse.append(everything.coarse)
        levels, left = _share_out(estimates)
        levels.append(Level("prior", left, 0.0, PRIOR))
        shares = [level.share for level in levels]
        mixture = LengthDistribution.mix(zip(shares, [*coarse, PRIOR], strict=True))
        made = _Background(self._due(rows.size), tuple(levels), mixture.compress(BACKGROUND_ATOMS))
        if len(self._backgrounds) >= MAX_BACKGROUNDS:
            self._backgrounds.clear()
        self._backgrounds[group, own_class, trial] = made
        return made

    def _all_of(self, group: Group, rows: Rows, trial: Discount | None) -> "_Everything":
        """The level of all records, which the backgrounds of every class share."""
        known = self._everything.get((group, trial))
        if known is not None and self.window.learnt < known.due:
            return known
        estimate = self._plain("global", self._chain.in_all, rows, trial)
        made = _Everything(self._due(rows.size), estimate, estimate.distribution.compress(COARSE_ATOMS))
        if len(self._everything) >= MAX_BACKGROUNDS:
            self._everything.clear()
        self._everything[group, trial] = made
        return made

    def _plain(self, name: str, kappa: float, rows: Rows, trial: Discount | None) -> "_Estimate":
        """A level of all these records, alike but for their age."""
        weights = self._aged(rows, trial)
        atoms = self._samples(rows, weights, trial)
        of_all = LengthDistribution.of_atoms(atoms.tokens, atoms.weights)
        return _Estimate(name, kappa, float(weights.sum()), of_all)

    def _due(self, records: int) -> int:
        """The count of records learnt at which what was made of so many records is due again."""
        return self.window.learnt + min(max(REFRESH_RECORDS, int(REFRESH_SHARE * records)), 1 + records // 4)


class _Estimate(NamedTuple):
    """A level before it has a share."""

    name: str
    kappa: float
    samples: float
    atoms: Atoms | LengthDistribution

    @property
    def distribution(self) -> LengthDistribution:
        """What the level alone would predict."""
        if isinstance(self.atoms, LengthDistribution):
            return self.atoms
        return LengthDistribution.of_atoms(self.atoms.tokens, self.atoms.weights)


class _Everything(NamedTuple):
    """The level of all records of a group, and the same in fewer atoms."""

    due: int
    estimate: _Estimate
    coarse: LengthDistribution


def _share_out(estimates: Iterable[_Estimate]) -> tuple[list[Level], float]:
    """Give each level its share of what those before it left over; also returns what is left at the end."""
    left = 1.0
    levels: list[Level] = []
    for name, kappa, samples, atoms in estimates:
        share = left * samples / (samples + kappa)
        levels.append(Level(name, share, samples, atoms))
        left -= share
    return levels, left


@dataclass(frozen=True, slots=True)
class _Background:
    """The levels behind the neighbours, their mixture, and the count of records learnt at which it is due again."""

    due: int
    levels: tuple[Level, ...]
    distribution: LengthDistribution


def _only(chain: Prediction, name: str, max_tokens: int | None) -> Prediction:
    """One level by itself; where the request has none of that name, that of all records, and at last the prior."""
    by_name = {level.name: level for level in chain.levels}
    level = by_name.get(name) or by_name.get("global") or chain.levels[-1]
    used = level.distribution.compress(COARSE_ATOMS).truncate(max_tokens)
    return Prediction(used, chain.levels, chain.neighbours, level.name, chain.distribution)


def _effective(weights: FloatArray) -> float:
    """Kish's effective number of samples."""
    return float(weights.sum() ** 2 / (weights @ weights))
