"""Checkpoints: complete or invisible, on any mesh, without the base; faults are injected."""

import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from agon_jax import sharding
from agon_jax.checkpoint import Checkpoints
from agon_jax.update import init_state, make_optimizer

ROOT = pathlib.Path(__file__).parents[1]


def state_at(step, where=None):
    optimizer = make_optimizer(learning_rate=1.0, steps=9, warmup=0.1, weight_decay=0.0, max_grad_norm=1.0)
    rng = np.random.default_rng(step)
    adapters = {
        "q_proj": {"a": jnp.array(rng.normal(size=(2, 8, 4)), jnp.float32), "b": jnp.zeros((2, 4, 8))}
    }
    state = init_state(adapters, optimizer)
    state = jax.tree.map(lambda x: x + jnp.asarray(step, x.dtype), state)
    return state if where is None else jax.device_put(state, where)


def assert_equal(a, b):
    jax.tree.map(np.testing.assert_array_equal, jax.tree.map(np.asarray, a), jax.tree.map(np.asarray, b))


def test_a_new_folder_has_nothing_to_restore(tmp_path):
    assert Checkpoints(tmp_path).restore(state_at(0)) is None


def test_round_trip_keeps_every_leaf_and_only_the_newest_few(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 3):
        checkpoints.save(state_at(step), {"next_index": step})
    checkpoints.close()
    again = Checkpoints(tmp_path)
    assert again.latest_step() == 3
    restored, position = again.restore(state_at(0))
    assert position == {"next_index": 3}
    assert_equal(restored, state_at(3))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["2", "3"]


@pytest.mark.parametrize("shape", [(4, 2, 1), (1, 1, 1), (1, 8, 1)])
def test_another_mesh_restores_with_its_own_sharding(tmp_path, shape):
    # the saved sharding must not be rebuilt: another machine has other devices
    mesh = lambda s: sharding.make_mesh(s, jax.devices()[: int(np.prod(s))])
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(state_at(5, sharding.replicated(mesh((2, 4, 1)))), {"next_index": 5})
    target = sharding.replicated(mesh(shape))
    restored, _ = checkpoints.restore(state_at(0, target))
    assert_equal(restored, state_at(5))
    assert all(x.sharding.is_equivalent_to(target, x.ndim) for x in jax.tree.leaves(restored))


def child(code, folder):
    code = (
        "import sys; sys.path.insert(0, 'tests')\n"
        "import pathlib, test_checkpoint as t\n"
        f"c = t.Checkpoints(pathlib.Path({str(folder)!r}))\n" + textwrap.dedent(code)
    )
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)


def test_a_process_that_ends_right_after_a_save_has_saved(tmp_path):
    assert (
        child("c.save(t.state_at(10), {'next_index': 10}); import os; os._exit(0)", tmp_path).returncode == 0
    )
    assert_equal(Checkpoints(tmp_path).restore(state_at(0))[0], state_at(10))


def test_a_kill_in_the_middle_of_a_save_leaves_the_previous_one(tmp_path):
    code = """
    import os, signal, pathlib
    c.save(t.state_at(10), {"next_index": 10})
    rename = os.rename
    # the commit of a step is its rename into place: die just before it
    pathlib.Path.rename = os.rename = os.replace = lambda *a, **k: os.kill(os.getpid(), signal.SIGKILL)
    c.save(t.state_at(20), {"next_index": 20})
    """
    assert child(code, tmp_path).returncode == -signal.SIGKILL
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.latest_step() == 10
    assert_equal(checkpoints.restore(state_at(0))[0], state_at(10))
    checkpoints.save(state_at(20), {"next_index": 20})  # and the run goes on over the remains
    assert Checkpoints(tmp_path).latest_step() == 20


def test_a_save_that_cannot_be_written_raises(tmp_path):
    # A file in the place of the folder: root ignores permissions, so read-only would not do.
    checkpoints = Checkpoints(tmp_path / "run")
    checkpoints.save(state_at(1), {"next_index": 1})
    os.rename(tmp_path / "run", tmp_path / "moved")
    (tmp_path / "run").write_text("")
    with pytest.raises(Exception):  # noqa: B017 (orbax passes on what the file system said)
        checkpoints.save(state_at(2), {"next_index": 2})
    os.remove(tmp_path / "run")
    os.rename(tmp_path / "moved", tmp_path / "run")
    assert Checkpoints(tmp_path / "run").latest_step() == 1
