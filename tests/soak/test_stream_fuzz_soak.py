"""A million random splits and mutations of streams and bodies. FUZZ_CASES and FUZZ_SEED scale and vary it."""

import multiprocessing
import os
import time
import traceback

import pytest
import stream_fuzz

CASES = int(os.environ.get("FUZZ_CASES", "1000000"))
SEED = int(os.environ.get("FUZZ_SEED", "1"))
IN_A_CHUNK = 5000
CHUNK_SECONDS = 120.0
"""A chunk takes about two seconds; one that takes so long hangs."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


def chunk(first):
    """The seeds that failed, with why."""
    failed = []
    for seed in range(first, first + IN_A_CHUNK):
        try:
            stream_fuzz.check(seed)
        except Exception:
            failed.append((seed, traceback.format_exc(limit=-3)))
    return first, failed


def test_a_million_splits_and_mutations_parse_as_the_whole_does():
    began, at = time.monotonic(), SEED * 10**9
    print(f"stream fuzz: seeds from {at}", flush=True)
    done, failed, open_chunks = 0, [], set(range(at, at + CASES, IN_A_CHUNK))
    with multiprocessing.get_context("spawn").Pool(min(4, os.cpu_count() or 1)) as pool:
        results = pool.imap_unordered(chunk, sorted(open_chunks))
        while open_chunks:
            try:
                first, found = results.next(timeout=CHUNK_SECONDS)
            except multiprocessing.TimeoutError:
                pytest.fail(f"hangs in one of {IN_A_CHUNK} seeds from one of {sorted(open_chunks)[:8]}")
            open_chunks.discard(first)
            failed += found
            done += IN_A_CHUNK
            assert len(failed) < 20, failed[:3]
            if done % 100_000 == 0:
                print(f"{done:,} cases in {time.monotonic() - began:.0f} s", flush=True)
    assert not failed, f"{[seed for seed, _ in failed]}: {failed[0][1]}"
    assert done >= CASES
