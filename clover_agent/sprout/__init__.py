"""Sprout: the tiny block-diffusion model that ships with the package, and everything that trains it."""

from pathlib import Path


def path() -> Path:
    """The checkpoint directory of the embedded weights."""
    return Path(__file__).parent / "weights"
