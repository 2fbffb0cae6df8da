"""Referees: what decides whether an answer is right. Nothing here imports JAX."""
