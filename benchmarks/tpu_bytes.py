"""What the TPU compiler makes of a decode step and of an update, without a TPU.

    pip install -e '.[tpu]' && python benchmarks/tpu_bytes.py [decode] [update]

libtpu compiles both programs on this machine, for a Qwen3-0.6B in bfloat16 with two LoRA adapters
of rank 16 on every linear layer; nothing is executed. Prints a table; exits with 1 when a target is
missed.

decode  One token for 64 rows with a cache of 2048 slots and an adapter index a row, on one v5p chip.
        Smallest possible traffic: weights, adapters and cache, each read once (16.3 GB). Bytes
        accessed are cost_analysis's, with the compiler's prefetches switched off: it adds up every
        buffer that an instruction names, so a weight prefetched into on-chip memory would count five
        times though it crosses HBM once. The figure with prefetches is printed too. Temporaries and
        compile time are those of the ordinary compilation, prefetches included.
update  One GRPO update of both adapters, 16 rows of 2048 tokens each, KL to the base included, on a
        v5e:2x4 (8 chips, weights split over `fsdp`): all memory of a chip, the program's code
        included, and of all arrays with a vocabulary axis the most elements beside that axis. With
        as many as a row has tokens, logits of whole rows would exist.

Expected with jax 0.10.2 and libtpu 0.0.52: decode 1.06 (1.3 with prefetches), temporaries 0.15 % of
the cache; update 5.5 GB a chip, 1024 elements. About five minutes on two cores, nearly all of it the
compilation of the update.
"""

import math
import os
import pathlib
import re
import sys
import time

# Read by libtpu when it loads: there is no TPU whose metadata it could ask for.
os.environ |= {
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_ACCELERATOR_TYPE": "v5p-8",
    "TPU_WORKER_HOSTNAMES": "localhost",
}
os.environ["JAX_PLATFORMS"] = "cpu"
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import jax
import jax.numpy as jnp
from jax.experimental import topologies

from agon_jax import sharding
from agon_jax.models import lora
from agon_jax.models.cache import empty_cache
from agon_jax.models.convert import param_specs
from agon_jax.models.decoder import Decoder
from agon_jax.models.families import from_hf
from agon_jax.types import Batch
from agon_jax.update import Objective, init_state, make_optimizer, make_update

QWEN3_0_6B = from_hf(dict(
    model_type="qwen3", vocab_size=151936, hidden_size=1024, num_hidden_layers=28,
    num_attention_heads=16, num_key_value_heads=8, head_dim=128, intermediate_size=3072,
    rope_theta=1e6, rms_norm_eps=1e-6, tie_word_embeddings=True,
))  # fmt: skip
SHARED = dict(rms_norm_eps=1e-6, tie_word_embeddings=True, head_dim=256)
FAMILIES = {
    "gemma 3 1b": from_hf(SHARED | dict(
        model_type="gemma3_text", vocab_size=262144, hidden_size=1152, num_hidden_layers=26,
        num_attention_heads=4, num_key_value_heads=1, intermediate_size=6912,
    )),
    "qwen3.5 2b": from_hf(SHARED | dict(
        model_type="qwen3_5_text", vocab_size=248320, hidden_size=2048, num_hidden_layers=24,
        num_attention_heads=8, num_key_value_heads=2, intermediate_size=6144, linear_num_value_heads=16,
        rope_parameters={"rope_theta": 1e7, "partial_rotary_factor": 0.25},
    )),
    "gemma 4 e2b": from_hf(SHARED | dict(
        model_type="gemma4_text", vocab_size=262144, hidden_size=1536, num_hidden_layers=35,
        num_attention_heads=8, num_key_value_heads=1, intermediate_size=6144, num_kv_shared_layers=20,
        use_double_wide_mlp=True, layer_types=(["sliding_attention"] * 4 + ["full_attention"]) * 7,
    )),
}  # fmt: skip
POLICIES, RANK = 2, 16
NO_PREFETCH = {"xla_vf_vmem_max_outstanding_prefetches": "0"}


def shapes(make, where):
    """ShapeDtypeStructs, placed by the sharding `where`, of what `make()` would allocate."""
    put = lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where)
    return jax.tree.map(put, jax.eval_shape(make))


def base_shapes(model, rules):
    """The frozen base in bfloat16, each weight placed by its logical axes."""
    base = {}
    for path, (shape, axes) in param_specs(model).items():
        node = base
        for part in path[:-1]:
            node = node.setdefault(part, {})
        node[path[-1]] = jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=rules(axes))
    return base


def adapter_shapes(base, where):
    """Stacked adapters [P, ...] on every linear layer."""
    one = lambda: lora.init_adapter(jax.random.key(0), base, RANK, (".*",), 0.0)
    return shapes(lambda: lora.stack_adapters([one()] * POLICIES), where)


def size(tree):
    """Bytes of a pytree of shapes."""
    return sum(math.prod(x.shape) * x.dtype.itemsize for x in jax.tree.leaves(tree))


def compiled(lowered, options=None):
    """(compiled program, seconds)."""
    start = time.perf_counter()
    return lowered.compile(options), time.perf_counter() - start


def decode_step(config=QWEN3_0_6B, name="decode", rows=64, slots=2048, most=1.15):
    """Rows of the table for one decode step."""
    mesh = sharding.make_mesh(devices=topologies.get_topology_desc("v5p:2x2x1", "tpu").devices[:1])
    here = sharding.replicated(mesh)
    model = Decoder(config, dtype=jnp.bfloat16)
    base = base_shapes(model, sharding.sharding_of(mesh))
    adapters = adapter_shapes(base, here)
    cache = shapes(lambda: empty_cache(config, rows, slots, jnp.bfloat16), here)
    ids = jax.ShapeDtypeStruct((rows,), jnp.int32, sharding=here)

    def step(base, adapters, cache, ids, adapter):
        return model.apply({"params": base, "lora": adapters}, ids, cache, adapter, method="decode")

    lowered = jax.jit(step, donate_argnums=2).lower(base, adapters, cache, ids, ids)
    looked_up = size(base.get("embed_tokens_per_layer", {}))  # a row a token, not the table
    smallest = size(base) - looked_up + size(adapters) + size(cache)
    plain, seconds = compiled(lowered)
    counted, _ = compiled(lowered, NO_PREFETCH)
    ratio = lambda program: program.cost_analysis()["bytes accessed"] / smallest
    spare = plain.memory_analysis().temp_size_in_bytes
    return [
        (f"{name}: smallest traffic, GB", smallest / 1e9, None),
        (f"{name}: bytes accessed / smallest", ratio(counted), most),
        (f"{name}: the same with prefetches", ratio(plain), None),
        (f"{name}: temporaries, MB", spare / 1e6, None),
        (f"{name}: temporaries, % of the cache", 100 * spare / size(cache), 2.0),
        (f"{name}: seconds to compile", seconds, None),
    ]


def family_steps():
    """Rows of the table for one decode step of each other family."""
    return [row for name, config in FAMILIES.items() for row in decode_step(config, name, most=None)]


def update_step(rows=16, tokens=2048, new=1536):
    """Rows of the table for one update of the pair."""
    mesh = sharding.make_mesh(devices=topologies.get_topology_desc("v5e:2x4", "tpu").devices)
    rules, everywhere = sharding.sharding_of(mesh), sharding.replicated(mesh)
    model = Decoder(QWEN3_0_6B, dtype=jnp.bfloat16, remat=True, rows=rules(("rows",)))
    base = base_shapes(model, rules)
    optimizer = make_optimizer(learning_rate=1e-4, steps=100, warmup=0.1, weight_decay=0.0, max_grad_norm=1.0)
    state = shapes(lambda: init_state(adapter_shapes(base, everywhere), optimizer), everywhere)
    of = lambda dtype, *more: jax.ShapeDtypeStruct(
        (POLICIES, rows, *more), dtype, sharding=rules(("policy", "rows"))
    )
    batch = Batch(
        tokens=of(jnp.int32, tokens), mask=of(jnp.bool, tokens), completion_mask=of(jnp.bool, new),
        logps=of(jnp.float32, new), advantages=of(jnp.float32), active=of(jnp.bool),
    )  # fmt: skip
    program, seconds = compiled(make_update(model, optimizer, Objective(), mesh).lower(state, base, batch))
    memory = program.memory_analysis()
    chip = (
        memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes + memory.generated_code_size_in_bytes
    )  # fmt: skip
    vocabulary = {QWEN3_0_6B.vocab_size, QWEN3_0_6B.vocab_size // mesh.shape["tensor"]}
    return [
        ("update: GB a chip", chip / 1e9, 16.0),
        ("update: elements beside the vocabulary", widest(program.as_text(), vocabulary), tokens - 1),
        ("update: seconds to compile", seconds, None),
    ]


def widest(hlo, axis_sizes):
    """The most elements that any array of the program has beside an axis of one of the sizes."""
    arrays = {tuple(map(int, dims.split(","))) for dims in re.findall(r"\w\[([\d,]+)\]", hlo)}
    return max(math.prod(dims) // axis for dims in arrays for axis in axis_sizes & set(dims))


def main():
    """Print the table; return whether every target is met."""
    parts = {"decode": decode_step, "families": family_steps, "update": update_step}
    names = sys.argv[1:] or list(parts)
    if unknown := set(names) - set(parts):
        sys.exit(f"unknown part {sorted(unknown)[0]!r}: want {' or '.join(parts)}")
    met = True
    for name in names:
        for label, value, most in parts[name]():
            verdict = "" if most is None else f"at most {most:g}: {'met' if value <= most else 'MISSED'}"
            met &= most is None or value <= most
            print(f"{label:<42}{value:>10,.2f}   {verdict}".rstrip(), flush=True)
    return met


if __name__ == "__main__":
    try:
        topologies.get_topology_desc("v5p:2x2x1", "tpu")
    except RuntimeError as error:
        sys.exit(f"the TPU compiler is missing: pip install -e '.[tpu]' ({error})")
    sys.exit(not main())
