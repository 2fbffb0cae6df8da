"""What a population saves: S seeds in one program against S runs one after another.

    python benchmarks/population.py [--config=configs/matrix_tiny.py] [--method=adv] [--seeds=5] [--steps=6]

Prints seconds a step and seed, and seconds to compile, of one seed alone and of S together, and what a
run of the config's own length takes either way.
"""

from __future__ import annotations

import argparse
import itertools
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from agon_jax.main import load_config, prepare_cpu  # noqa: E402


def measure(config, parts, method: str, seeds: tuple[int, ...]) -> tuple[float, float]:
    """(seconds of the first two steps beyond two usual ones, median seconds a step)."""
    from rich.console import Console

    from agon_jax import setup
    from agon_jax.display import Display
    from agon_jax.train import train

    class Clock(Display):
        def step(self, done, metrics):
            marks.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        marks = [time.perf_counter()]
        game = setup.make_game(config, method)
        train(config, parts, game, seeds, pathlib.Path(folder), Clock(Console(quiet=True)))
    seconds = [after - before for before, after in itertools.pairwise(marks)]
    usual = statistics.median(seconds[2:])
    return sum(seconds[:2]) - 2 * usual, usual


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--config", default=str(ROOT / "configs" / "matrix_tiny.py"))
    parser.add_argument("--method", default="adv")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    args = parser.parse_args()
    prepare_cpu()
    from agon_jax import setup

    config = load_config(args.config)
    with config.unlocked():
        length, config.grpo.steps = config.grpo.steps, args.steps
        config.log.tensorboard, config.eval.every = False, 0
    times = {}
    for size in (1, args.seeds):
        parts = setup.make_parts(config)  # anew, so that both compile
        times[size] = compiling, step = measure(config, parts, args.method, tuple(range(size)))
        each = f"{step / size:.2f} s a step and seed"
        print(f"{size} seed(s): {each}, {compiling:.0f} s to compile", flush=True)
    alone = args.seeds * (times[1][0] + length * times[1][1])
    together = times[args.seeds][0] + length * times[args.seeds][1]
    print(
        f"{args.seeds} seeds x {length} steps: {alone:.0f} s as processes of their own, {together:.0f} s "
        f"in one program ({together / alone:.2f} of it)"
    )


if __name__ == "__main__":
    main()
