"""Time and memory of loading a Hugging Face folder, against transformers in the same run.

    pip install -e '.[bench]' && python benchmarks/load.py /path/to/folder [--runs=5]

For bfloat16 and float32, both loaders in turn in one process: seconds until all weights are in host
memory (median of the runs), the ratio, and the peak of anonymous memory above the start next to the
size of the weights. Imports are not timed, and one load of each comes first, so that files come from
the page cache.

transformers maps weights that need no conversion and returns before they are read, so the clock stops
once a byte of every memory page has been read; the time until the return is printed beside it. Mapped
pages are not anonymous memory (RssAnon of /proc/self/status, read every 2 ms; without /proc memory is
not measured).
"""

import argparse
import contextlib
import ctypes
import dataclasses
import gc
import mmap
import os
import pathlib
import re
import statistics
import sys
import threading
import time

import numpy as np

os.environ["JAX_PLATFORMS"] = "cpu"  # transformers loads into host memory too
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
    """The weights as NumPy arrays, which share their memory."""
    import jax

    from agon_jax.models import load

    leaves = jax.block_until_ready(jax.tree.leaves(load(folder, dtype=dtype)[1]))
    return [np.asarray(leaf) for leaf in leaves]


def load_theirs(folder, dtype):
    """The same from transformers; a tied head counts once."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype))
    return [weight.detach().view(torch.uint8).numpy() for weight in model.parameters()]


LOADERS = {"agon_jax": load_ours, "transformers": load_theirs}


@dataclasses.dataclass
class Load:
    """One load: seconds until all is read and until the return, peak anonymous bytes, bytes of weights."""

    seconds: float
    returned: float
    peak: int | None
    size: int


def load_once(loader, folder, dtype):
    with Peak() as peak:
        start = time.perf_counter()
        weights = loader(folder, dtype)
        returned = time.perf_counter() - start
        for weight in weights:
            weight.reshape(-1).view(np.uint8)[:: mmap.PAGESIZE].max()
        seconds = time.perf_counter() - start
    return Load(seconds, returned, peak.bytes, sum(weight.nbytes for weight in weights))


def measure(folder, dtype, runs):
    """Name -> its loads, in turn; a first one of each warms up."""
    loads = {name: [] for name in LOADERS}
    for _ in range(runs + 1):
        for name, loader in LOADERS.items():
            loads[name].append(load_once(loader, folder, dtype))
    return {name: every[1:] for name, every in loads.items()}


def report(dtype, loads):
    medians = {}
    for name, every in loads.items():
        seconds = [load.seconds for load in every]
        returned = statistics.median(load.returned for load in every)
        medians[name], size, memory = (statistics.median(seconds), returned), every[0].size, "not measured"
        if every[0].peak is not None:
            peak = max(load.peak for load in every)
            memory = f"{peak / 1e6:,.0f} MB ({peak / size:.2f} x the weights)"
        print(
            f"{dtype:8} {name:12} {medians[name][0]:.2f} s ({min(seconds):.2f} to {max(seconds):.2f}; "
            f"returned after {returned:.2f}), weights {size / 1e6:,.0f} MB, peak anonymous memory {memory}"
        )
    read, returned = (a / b for a, b in zip(medians["agon_jax"], medians["transformers"], strict=True))
    print(
        f"{dtype:8} agon_jax takes {read:.2f} x transformers' time (until the return: {returned:.2f} x)",
        flush=True,
    )


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
