"""Sizes and rules of a decoder, as data: one frozen dataclass per part.

`families.py` reads them from a real `config.json`; `decoder.py` builds what they say.
"""

from __future__ import annotations

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Rope:
    """Rotary position embedding of one kind of layer, split-half.

    Attributes:
      theta: base of the frequencies.
      dims: leading dimensions of a head that are rotated; the exponents are 2i / dims.
      frequencies: non-zero frequencies. Fewer than dims / 2 is Gemma 4's "proportional" RoPE: the
        rest of the dims are paired at the full distance dims / 2, but turn by nothing.
      factor: every frequency is divided by it ("linear" scaling).
    """

    theta: float
    dims: int
    frequencies: int
    factor: float = 1.0

    def inverse_frequencies(self) -> np.ndarray:
        """Float32 [dims / 2], radians a position."""
        exponents = np.arange(0, 2 * self.frequencies, 2, dtype=np.float32) / np.float32(self.dims)
        inverse = np.float32(1) / np.float32(self.theta) ** exponents / np.float32(self.factor)
        return np.pad(inverse, (0, self.dims // 2 - self.frequencies))


@dataclasses.dataclass(frozen=True)
class Attention:
    """Softmax attention of one layer. `num_heads * head_dim` may differ from the hidden size.

    Attributes:
      scale: the scores are multiplied by it.
      window: a query sees this many newest keys, itself included; None sees all.
      qk_norm: RMSNorm of every query and key head before RoPE.
      value_norm: RMSNorm without a weight of every value head.
      output_gate: q_proj also makes a gate; the heads' output is multiplied by its sigmoid.
      keys_as_values: there is no v_proj; values are the raw output of k_proj.
      kv_layer: number of an earlier layer whose keys and values are used; None has its own.
    """

    num_heads: int
    num_kv_heads: int
    head_dim: int
    rope: Rope
    scale: float
    window: int | None = None
    qk_norm: bool = False
    value_norm: bool = False
    output_gate: bool = False
    keys_as_values: bool = False
    kv_layer: int | None = None

    @property
    def queries_per_kv(self) -> int:
        """Query heads that share one key/value head."""
        return self.num_heads // self.num_kv_heads


@dataclasses.dataclass(frozen=True)
class DeltaNet:
    """Gated delta net of one layer: linear attention with a state of [key_dim, value_dim] a head."""

    num_key_heads: int
    num_value_heads: int
    key_dim: int
    value_dim: int
    kernel: int  # taps of the causal convolution

    @property
    def channels(self) -> int:
        """Width of [q | k | v], all of which pass the convolution."""
        return 2 * self.num_key_heads * self.key_dim + self.num_value_heads * self.value_dim


@dataclasses.dataclass(frozen=True)
class Layer:
    """One block: a mixer over tokens, then an MLP."""

    mixer: Attention | DeltaNet
    intermediate_size: int


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Architecture of one decoder.

    Attributes:
      norm: how an RMSNorm applies its weight w: "cast_first" (normalise in float32, cast, times
        w), "float32" (times w, then cast) or "one_plus" (times 1 + w in float32, then cast).
      sandwich_norms: a block's output is normalised once more before it is added (Gemma).
      activation: of the MLP's gate, "silu" or "gelu_tanh".
      scale_embeddings: embeddings times sqrt(hidden_size), rounded to the activations' dtype.
      logit_softcap: logits become cap * tanh(logits / cap).
      per_layer_dim: width of Gemma 4's per-layer embeddings; 0 has none.
      per_layer_vocab: rows of their table.
      per_layer_count: layers that the table has entries for.
      layer_scalar: every layer ends with a product by a stored scalar.
    """

    vocab_size: int
    hidden_size: int
    layers: tuple[Layer, ...]
    rms_norm_eps: float
    tie_word_embeddings: bool
    norm: str = "cast_first"
    sandwich_norms: bool = False
    activation: str = "silu"
    scale_embeddings: bool = False
    logit_softcap: float | None = None
    per_layer_dim: int = 0
    per_layer_vocab: int = 0
    per_layer_count: int = 0
    layer_scalar: bool = False

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def shared_kv(self) -> frozenset[int]:
        """Layers whose keys and values a later layer uses."""
        sources = (getattr(layer.mixer, "kv_layer", None) for layer in self.layers)
        return frozenset(source for source in sources if source is not None)
