"""Time and memory of loading a Hugging Face folder, against transformers in the same run.

    python benchmarks/load.py /path/to/folder [--runs=5]

For bfloat16 and float32: seconds until all weights are in memory (median of the runs, both loaders in
turn in one process), the ratio, and the peak of anonymous host memory above the start, next to the
size of the weights. Imports are not timed, and one load of each comes first, so files come from the
page cache. Anonymous memory (RssAnon of /proc/self/status, every 2 ms) leaves out mapped file pages;
where there is no /proc it is not measured. Needs torch.

Both loaders may return before a byte is read (transformers leaves weights mapped that need no
conversion), so the clock stops once every weight has been added up.
"""

import argparse
import contextlib
import ctypes
import gc
import os
import pathlib
import re
import statistics
import sys
import threading
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # transformers loads into host memory too
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

STATUS = pathlib.Path("/proc/self/status")
POLL_SECONDS = 0.002


def anonymous_bytes():
    """Anonymous resident memory of this process; None where the system does not tell."""
    with contextlib.suppress(OSError):
        if found := re.search(r"RssAnon:\s+(\d+) kB", STATUS.read_text()):
            return int(found[1]) * 1024
    return None


def trim():
    """Give freed memory back, so that the next load's memory shows."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc alone has it
        ctypes.CDLL(None).malloc_trim(0)


class Peak:
    """Context that watches the peak of anonymous memory above its start; `bytes` is None if unknown."""

    def __enter__(self):
        trim()
        self._start, self._over = anonymous_bytes(), threading.Event()
        self.bytes = None if self._start is None else 0
        self._thread = threading.Thread(target=self._watch, daemon=True)
        if self._start is not None:
            self._thread.start()
        return self

    def _watch(self):
        over = False
        while not over:
            over = self._over.wait(POLL_SECONDS)
            self.bytes = max(self.bytes, anonymous_bytes() - self._start)

    def __exit__(self, *_):
        self._over.set()
        if self._start is not None:
            self._thread.join()


def load_ours(folder, dtype):
    """Our loader; returns the bytes of the weights."""
    import jax

    from agon_jax.models import load

    leaves = jax.tree.leaves(load(folder, dtype=dtype)[1])
    jax.block_until_ready([leaf.sum() for leaf in leaves])
    return sum(leaf.nbytes for leaf in leaves)


def load_theirs(folder, dtype):
    """transformers' loader; returns the bytes of the weights (a tied head once)."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    with torch.no_grad():
        for weight in model.parameters():
            weight.sum()
    return sum(weight.nbytes for weight in model.parameters())


LOADERS = {"agon_jax": load_ours, "transformers": load_theirs}


def measure(folder, dtype, runs):
    """Name -> (median seconds, all seconds, peak anonymous bytes or None, bytes of the weights)."""
    seconds, peaks, sizes = ({name: [] for name in LOADERS} for _ in range(3))
    for run in range(runs + 1):
        for name, loader in LOADERS.items():
            with Peak() as peak:
                start = time.perf_counter()
                size = loader(folder, dtype)
                took = time.perf_counter() - start
            if run:  # the first one warms up
                seconds[name].append(took)
                peaks[name].append(peak.bytes)
                sizes[name].append(size)
    return {
        name: (
            statistics.median(seconds[name]),
            seconds[name],
            None if None in peaks[name] else max(peaks[name]),
            sizes[name][0],
        )
        for name in LOADERS
    }


def report(dtype, results):
    for name, (median, seconds, peak, size) in results.items():
        memory = "not measured" if peak is None else f"{peak / 1e6:,.0f} MB ({peak / size:.2f} x the weights)"
        print(
            f"{dtype:8} {name:12} {median:6.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), "
            f"{size / 1e6:,.0f} MB of weights, peak anonymous memory {memory}"
        )
    ratio = results["agon_jax"][0] / results["transformers"][0]
    print(f"{dtype:8} agon_jax takes {ratio:.2f} x transformers' time", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="a Hugging Face model folder")
    parser.add_argument("--runs", type=int, default=5, help="timed loads of each (default 5)")
    args = parser.parse_args()
    if not (args.folder / "config.json").is_file():
        sys.exit(f"{args.folder} is not a Hugging Face model folder: it has no config.json")
    if args.runs < 1:
        sys.exit(f"--runs must be at least 1, not {args.runs}")
    try:
        from transformers.utils import logging
    except ImportError as error:
        sys.exit(f"transformers is needed for the comparison: {error}")
    logging.disable_progress_bar()
    try:
        for dtype in ("bfloat16", "float32"):
            report(dtype, measure(args.folder, dtype, args.runs))
    except (ImportError, OSError, ValueError) as error:
        sys.exit(f"{args.folder}: {str(error).strip().splitlines()[0]}")


if __name__ == "__main__":
    main()
