"""Speed of the judges, and what a killed worker costs.

    python benchmarks/verify.py [math] [code] [--workers=2] [--answers=6000] [--programs=40] [--tests=10]

math  Ordinary answers: numbers, fractions, roots, points, intervals, polynomials and words in replies of
      a few hundred characters, half of them right and spelled otherwise than the gold. The clock starts
      once the workers have started. Then four workers grade while one of them is killed: every answer
      must get its verdict. Target: 300 answers/s.
code  Program-tests in the best sandbox of this machine: one program on one input, a process of its own,
      its output compared. Half of the programs are short, half compute for some ten milliseconds; all are
      right, so every test runs. Target: 40 program-tests/s.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import random
import resource
import signal
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from agon_jax.verify.code import CodeJudge
from agon_jax.verify.math import MathPool
from agon_jax.verify.sandbox import best_backend

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


SHORT = "a, b = map(int, input().split())\nprint(a + b)"
LONG = """
import heapq, sys
a, b = map(int, sys.stdin.readline().split())
heap, seen = [(0, a)], {a}
while heap and len(seen) < 6000:
    cost, at = heapq.heappop(heap)
    for step in (at * 2 % 99991, (at + 7) % 99991):
        if step not in seen:
            seen.add(step)
            heapq.heappush(heap, (cost + 1, step))
print(a + b)
"""


def measure_math(args) -> None:
    """Answers a second, then the verdicts lost to a killed worker."""
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


def measure_code(args) -> None:
    """Program-tests a second."""
    tests = [{"input": f"{i} {i * i + 1}\n", "output": f"{i + i * i + 1}\n"} for i in range(args.tests)]
    items = [(f"```python\n{(SHORT, LONG)[i % 2]}\n```", tests) for i in range(args.programs)]
    judge = CodeJudge(timeout_s=10.0)
    print(f"{best_backend()}, {args.workers} workers, {len(items)} programs, {len(tests)} tests each")
    judge.grade_many(items[:2], workers=args.workers)  # files in memory, code compiled
    before, start = _cpu_s(), time.perf_counter()
    verdicts = judge.grade_many(items, workers=args.workers)
    wall, cpu = time.perf_counter() - start, _cpu_s() - before
    wrong = [verdict.reason for verdict in verdicts if not verdict.correct]
    if wrong:
        raise SystemExit(f"{len(wrong)} right programs failed: {wrong[0]}")
    count = len(items) * len(tests)
    print(f"{count / wall:.0f} program-tests/s, {1e3 * cpu / count:.1f} ms of CPU each, {wall:.1f} s")


def _cpu_s() -> float:
    """Seconds of CPU of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", default=["math", "code"])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--answers", type=int, default=6000)
    parser.add_argument("--programs", type=int, default=40)
    parser.add_argument("--tests", type=int, default=10)
    args = parser.parse_args()
    measures = {"math": measure_math, "code": measure_code}
    if unknown := set(args.parts) - set(measures):
        parser.error(f"unknown part {sorted(unknown)[0]!r}: want math or code")
    for part in args.parts:
        measures[part](args)


if __name__ == "__main__":
    main()
