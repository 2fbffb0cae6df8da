"""Speed of the math referee, and what a killed worker costs.

    python benchmarks/verify_math.py [--workers=2] [--answers=6000]

Ordinary answers: numbers, fractions, roots, points, intervals, polynomials and words in replies of a few
hundred characters, half of them right and spelled otherwise than the gold. The clock starts once the
workers have started. Then four workers grade while one of them is killed: every answer must get its verdict.
"""

import argparse
import os
import pathlib
import random
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from agon_jax.verify.math import MathPool

# (gold, a right answer, a wrong one)
TRIPLES = [
    ("{n}", "{n}", "{m}"),
    ("{n}", "{n}.0", "{m}.0"),
    ("{n}", "x = {n}", "x = {m}"),
    ("{n}", "{n} \\text{{ meters}}", "-{n}"),
    ("\\frac{{{n}}}{{7}}", "{n}/7", "\\frac{{{m}}}{{7}}"),
    ("\\frac{{{n}}}{{8}}", "\\dfrac{{{n}}}{{8}}", "\\frac{{8}}{{{n}}}"),
    ("{n}\\sqrt{{3}}", "\\sqrt{{3}} \\cdot {n}", "{n}\\sqrt{{5}}"),
    ("{n}\\pi", "{n} \\pi", "{n}"),
    ("({n}, {m})", "\\left({n}, {m}\\right)", "({m}, {n})"),
    ("({n}, \\infty)", "x > {n}", "[{n}, \\infty)"),
    ("{n}, {m}", "{m}, {n}", "{n}"),
    ("{n} - {m}i", "-{m}i + {n}", "{n} + {m}i"),
    ("x^2 + {n}x + {m}", "x(x + {n}) + {m}", "x^2 + {n}x - {m}"),
    (
        "\\frac{{x+{n}}}{{x-{n}}}",
        "\\frac{{2x + 2 \\cdot {n}}}{{2x - 2 \\cdot {n}}}",
        "\\frac{{x-{n}}}{{x+{n}}}",
    ),
    ("y = {n}x + {m}", "{n}x - y + {m} = 0", "y = {n}x - {m}"),
    ("\\text{{even}}", "even", "odd"),
    ("\\text{{(C)}}", "C", "D"),
    ("{n}^\\circ", "{n}°", "{m}^\\circ"),
    ("\\begin{{pmatrix}} {n} \\\\ {m} \\end{{pmatrix}}",) * 2
    + ("\\begin{{pmatrix}} {m} \\\\ {n} \\end{{pmatrix}}",),
    ("{n}.25", "\\frac{{4 \\cdot {n} + 1}}{{4}}", "{n}.2"),
]
FILLER = "We set up the equation, simplify both sides and check the result once more. " * 5


def rows(count, seed=0):
    """((completion, gold), whether it is right) of each answer."""
    rng = random.Random(seed)
    out = []
    for i in range(count):
        gold, right, wrong = TRIPLES[i % len(TRIPLES)]
        n, m = rng.sample(range(2, 1000), 2)
        is_right = rng.random() < 0.5
        answer = (right if is_right else wrong).format(n=n, m=m)
        out.append(((f"{FILLER}So the answer is $\\boxed{{{answer}}}$.", gold.format(n=n, m=m)), is_right))
    return out


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--answers", type=int, default=6000)
    args = parser.parse_args()
    pairs, expected = zip(*rows(args.answers), strict=True)

    with MathPool(workers=args.workers) as pool:
        pool.grade_many(pairs[: 10 * args.workers])
        start = time.perf_counter()
        grades = pool.grade_many(pairs)
        seconds = time.perf_counter() - start
    mistakes = sum(grade.correct != right for grade, right in zip(grades, expected, strict=True))
    rate = len(pairs) / seconds
    print(f"{len(pairs)} answers, {args.workers} workers: {rate:.0f} answers/s, {mistakes} mistakes")

    with MathPool(workers=4) as pool:
        pool.grade_many(pairs[:40])
        victim = pool.pids[0]
        timer = threading.Timer(seconds / 4, os.kill, (victim, signal.SIGKILL))
        timer.start()
        after = pool.grade_many(pairs)
        timer.join()
        lost = sum(a != b for a, b in zip(after, grades, strict=True))
        print(f"4 workers, one killed: {lost} of {len(pairs)} verdicts lost")


if __name__ == "__main__":
    main()
