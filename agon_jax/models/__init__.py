"""Decoders in Flax, adapters, and conversion from and to Hugging Face folders."""

from agon_jax.models.cache import Cache, empty_cache
from agon_jax.models.config import ModelConfig
from agon_jax.models.convert import load
from agon_jax.models.decoder import Decoder

__all__ = ["Cache", "Decoder", "ModelConfig", "empty_cache", "load"]
