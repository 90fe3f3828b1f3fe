"""Progress on stderr: a bar on a terminal, a line now and then where there is none."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import NoReturn, Self, TextIO

from tqdm import tqdm

LINE_EVERY_S = 5.0


class Progress:
    """Counts answered requests over all runs. Used as a context manager."""

    def __init__(self, total: int, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._total, self._stream, self._clock = total, stream, clock
        self._bar: tqdm[NoReturn] | None = None
        if stream.isatty():
            self._bar = tqdm(total=total, unit="req", file=stream, dynamic_ncols=True)
        self._stage, self._done, self._told_s = "", 0, clock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def stage(self, name: str) -> None:
        """What runs from now on."""
        self._stage = name
        if self._bar is not None:
            self._bar.set_description(name)
        else:
            self._tell()

    def step(self) -> None:
        """One more request is over."""
        self._done += 1
        if self._bar is not None:
            self._bar.update()
        elif self._clock() - self._told_s >= LINE_EVERY_S or self._done == self._total:
            self._tell()

    def _tell(self) -> None:
        self._told_s = self._clock()
        print(f"{self._stage}: {self._done} of {self._total} requests", file=self._stream, flush=True)
