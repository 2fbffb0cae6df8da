"""The worker pool: a hanging, crashing or killed worker costs its own item and nothing else."""

import concurrent.futures
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from agon_jax.verify.math import MathPool
from agon_jax.verify.pool import Pool, Result

ROOT = pathlib.Path(__file__).parents[1]


def act(item):
    """What one item makes a worker do."""
    verb, argument = item
    if verb == "sleep":
        time.sleep(argument)
    elif verb == "spin":
        end = time.monotonic() + argument
        while time.monotonic() < end:
            pass
    elif verb == "hold":  # one C call that never gives up the interpreter lock
        return len(str(9 ** (9**9)))
    elif verb == "exit":
        os._exit(argument)
    elif verb == "raise":
        raise KeyError(argument)
    elif verb == "memory":
        return len(bytearray(argument))
    elif verb == "pid":
        return os.getpid()
    elif verb == "lambda":
        return lambda: None
    elif verb == "die once":  # the first worker to see it dies
        if not os.path.exists(argument):
            pathlib.Path(argument).touch()
            os.kill(os.getpid(), signal.SIGKILL)
    elif verb == "print":
        print("noise", flush=True)
    return argument


def alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition, seconds=20.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    assert condition()


@pytest.fixture(scope="module")
def shared():
    with Pool(act, workers=2, timeout=30.0, memory_bytes=1 << 30) as pool:
        yield pool


def test_order_and_progress(shared):
    seen = []
    items = [("same", i) for i in range(50)]
    results = shared.map(items, lambda done, total: seen.append((done, total)))
    assert results == [Result(value=i) for i in range(50)]
    assert seen == [(i, 50) for i in range(1, 51)]
    assert shared.map([]) == []
    assert shared.map(iter(items[:2])) == results[:2]


def test_errors_stay_with_their_item(shared):
    verbs = [("raise", 1), ("memory", 2 << 30), ("same", 2), ("lambda", 0), ("exit", 3), ("print", 4)]
    errors = [result.error for result in shared.map(verbs)]
    assert errors[0] == "error: KeyError: 1"
    assert errors[1] == "memory"
    assert errors[3].startswith("error: ")
    assert errors[4] == "crash"
    assert errors[2] is errors[5] is None


def test_items_that_cannot_be_sent(shared):
    results = shared.map([("same", lambda: None), ("same", 1)])
    assert results[0].error.startswith("error: ") and results[1] == Result(value=1)


def test_a_large_item(shared):
    text = "x" * 5_000_000
    assert shared.map([("same", text)]) == [Result(value=text)]


@pytest.mark.parametrize("timeout", [0.2, 0.5, 0.999])
def test_timeouts_below_a_second(timeout):
    """alarm(int(0.5)) is alarm(0): no limit at all, 3 s instead of 0.5 s."""
    with Pool(act, workers=1, timeout=timeout) as pool:
        for verb in ("sleep", "spin", "hold"):
            assert pool.map([("same", 1)]) == [Result(value=1)]  # by a new worker
            start = time.monotonic()
            results = pool.map([(verb, 3.0)])
            wall = time.monotonic() - start
            assert results == [Result(error="timeout")]
            assert timeout <= wall < timeout + 1.0


def test_waiting_does_not_count():
    """A clock that starts when items are handed in fails most of these."""
    with Pool(act, workers=1, timeout=1.0) as pool:
        assert pool.map([("sleep", 0.1)] * 15) == [Result(value=0.1)] * 15


def test_a_timeout_hits_nobody_else():
    with Pool(act, workers=2, timeout=0.5) as pool:
        items = [("same", i) if i % 5 else ("sleep", 10) for i in range(20)]
        results = pool.map(items)
        assert [r.error for r in results] == [None if i % 5 else "timeout" for i in range(20)]
        assert [r.value for r in results if not r.error] == [i for i in range(20) if i % 5]


def test_killed_workers_lose_nothing():
    """Two of four workers are killed from outside in the middle; every item is graded."""
    with Pool(act, workers=4, timeout=30.0) as pool:
        before = {r.value for r in pool.map([("pid", 0)] * 8)}
        wait_until(lambda: len(pool.pids) == 4)
        killer = threading.Timer(0.3, lambda: [os.kill(pid, signal.SIGKILL) for pid in pool.pids[:2]])
        killer.start()
        items = [("sleep", 0.02 + i * 1e-4) for i in range(100)]
        assert pool.map(items) == [Result(value=argument) for _, argument in items]
        killer.join()
        wait_until(lambda: len(pool.pids) == 4)
        assert before


def test_an_item_is_tried_twice(tmp_path):
    with Pool(act, workers=1, timeout=30.0) as pool:
        path = str(tmp_path / "seen")
        assert pool.map([("die once", path), ("exit", 1), ("same", 1)]) == [
            Result(value=path),
            Result(error="crash"),
            Result(value=1),
        ]


def test_any_thread(shared):
    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        calls = [threads.submit(shared.map, [("same", (n, i)) for i in range(20)]) for n in range(8)]
        for n, call in enumerate(calls):
            assert [r.value for r in call.result()] == [(n, i) for i in range(20)]


def test_close_leaves_nothing():
    pool = Pool(act, workers=2, timeout=60.0)
    with concurrent.futures.ThreadPoolExecutor(1) as thread:
        call = thread.submit(pool.map, [("sleep", 50)] * 4)
        wait_until(lambda: len(pool.pids) == 2)
        pids = pool.pids
        time.sleep(0.3)
        pool.close()
        assert [r.error for r in call.result()] == ["crash"] * 4
    assert not any(map(alive, pids)) and not pool.pids
    pool.close()  # again
    with pytest.raises(RuntimeError, match="closed"):
        pool.map([("same", 1)])


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="positive"):
        Pool(act, timeout=0)
    with pytest.raises(ValueError, match="worker"):
        Pool(act, workers=0)


@pytest.mark.parametrize("verb", ["same", "sleep", "hold"])
def test_workers_end_with_a_killed_parent(verb):
    """The parent gets kill -9: idle, sleeping and computing workers all end."""
    code = f"""
        import sys, threading, time
        sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
        from agon_jax.verify.pool import Pool
        from test_verify_pool import act
        pool = Pool(act, workers=2, timeout=600.0)
        pool.map([("same", 1)] * 4)
        while len(pool.pids) < 2: time.sleep(0.01)
        threading.Thread(target=pool.map, args=([({verb!r}, 300)] * 2,), daemon=True).start()
        time.sleep(0.5)
        print(*pool.pids, flush=True)
        time.sleep(600)
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], stdout=subprocess.PIPE, text=True
    )
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    try:
        assert len(pids) == 2 and all(map(alive, pids))
        parent.kill()
        parent.wait()
        wait_until(lambda: not any(map(alive, pids)), seconds=5.0)
    finally:
        parent.kill()
        for pid in filter(alive, pids):
            os.kill(pid, signal.SIGKILL)


def test_the_parent_main_module_is_not_run_again(tmp_path):
    """A spawned multiprocessing worker imports the parent's main module, and with it JAX."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(f"""
            import sys
            sys.path.insert(0, {str(ROOT)!r})
            print("main", flush=True)
            from agon_jax.verify.math import MathPool
            pool = MathPool(workers=2)
            print(pool.grade_many([("5", "5"), ("6", "5")])[0].correct)
            pool.close()
        """)
    )
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["main", "True"]


# Grading in the pool.

HOSTILE = [
    "9^{9^{9^9}}",
    "(9^{9^{9^9}}+1)^{9^{9^9}}",
    "(" * 3000 + "1" + ")" * 3000,
    "\\sqrt{" * 3000 + "1" + "}" * 3000,
    "\\frac{1}{" * 90 + "1" + "}" * 90,
    "1" * 15_000,
    "x" + "^x" * 500,
    "5000!" * 50 + "5000!",
    "+".join(["5000!"] * 1000),
    "*".join(["(x+1)^{1000}"] * 1000),
    "-" * 15_000 + "1",
    "a " * 9000,
    "1 or " * 3000 + "1",
    "\\begin{pmatrix}" * 500,
    "\\text{" * 3000,
    "{," * 5000,
    "\\cup".join(["(1,2)"] * 2000),
]


def test_hostile_answers_cost_their_own_worker():
    with MathPool(workers=2, timeout=2.0) as pool:
        rows = [row for text in HOSTILE for row in ((text, "1"), ("\\boxed{7}", "7"))]
        grades = pool.grade_many(rows)
    assert not any(grade.correct for grade in grades[::2])
    assert all(grade.correct for grade in grades[1::2])


def test_many_at_once():
    """Counting the queue, most of 200 answers on 4 workers with 2 s each time out."""
    with MathPool(workers=4, timeout=2.0) as pool:
        grades = pool.grade_many([(r"\boxed{(a+b)^2}", "a^2+2ab+b^2")] * 200)
    assert [grade.reason for grade in grades] == ["equal"] * 200


def test_math_pool_reads_answers_as_asked():
    with MathPool(workers=1) as pool:
        rows = [("The answer is 5.", "5"), ("5", "5")]
        assert [g.correct for g in pool.grade_many(rows)] == [True, True]
        assert [g.correct for g in pool.grade_many(rows, extracted=True)] == [False, True]
        assert len(pool.pids) == 1
