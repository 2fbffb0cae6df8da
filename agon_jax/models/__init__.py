"""Decoders in Flax, adapters, and conversion from and to Hugging Face folders."""

from agon_jax.models.config import ModelConfig
from agon_jax.models.convert import load
from agon_jax.models.decoder import Decoder

__all__ = ["Decoder", "ModelConfig", "load"]
