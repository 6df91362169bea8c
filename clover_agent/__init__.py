"""An OpenAI-compatible gateway around a block-diffusion language model."""

__version__ = "0.1.0"
