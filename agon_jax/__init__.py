"""Train two language models against each other: Agon in JAX and Flax.

Importing the package parses no flags and starts no backend.
"""

__version__ = "0.1.0"
