"""The code that a checkpoint of the tests brings along: sprout behind a forward of transformers' shape.

The quirks (config.json, `quirks`) are what the probes must find. What is before the last block, counted from the start
in multiples of the block size, is read causally; with `response_blocks` a block is what is read on top of a cache.
"""

import copy

import torch
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

from clover_agent.model.config import ModelConfig
from clover_agent.model.ragged import RaggedPass, Span
from clover_agent.model.state import NativeState
from clover_agent.model.transformer import HybridTransformer


class QuirkyConfig(PretrainedConfig):
    model_type = "quirky"

    def __init__(self, sprout=None, quirks=None, **others):
        self.sprout, self.quirks = sprout or {}, quirks or {}
        super().__init__(**others)


class QuirkyCache:
    """The state, and the states of earlier lengths: so it can be cropped to where it once was."""

    def __init__(self, quirks):
        self.quirks, self.state, self.earlier = quirks, None, {}

    def crop(self, length):
        if self.quirks.get("no_crop"):
            raise NotImplementedError("a recurrent state cannot be cropped")
        self.state = self.earlier[length]

    def write(self, state):
        if self.state is not None:
            self.earlier[self.state.length] = self.state
        self.state = state

    def __deepcopy__(self, memo):
        if self.quirks.get("no_copy"):
            raise NotImplementedError("no copies")
        other = QuirkyCache(self.quirks)
        other.state, other.earlier = copied(self.state), {n: copied(state) for n, state in self.earlier.items()}
        return other


def copied(state):
    """A state of its own with the same content."""
    if state is None:
        return None
    other = copy.copy(state)
    other.keys = state.keys.clone()
    return other


class QuirkyModel(PreTrainedModel, GenerationMixin):
    config_class = QuirkyConfig
    _no_split_modules = []
    all_tied_weights_keys = {}

    def __init__(self, config):
        super().__init__(config)
        self.native = ModelConfig.from_dict(config.sprout)
        self.inner = HybridTransformer(self.native)
        self.quirks = config.quirks

    def _init_weights(self, module):
        pass

    def get_input_embeddings(self):
        return self.inner.embed_tokens

    def forward(
        self,
        input_ids,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        use_cache=None,
        logits_to_keep=0,
        **keywords,
    ):
        if past_key_values is not None and self.quirks.get("no_cache"):
            raise NotImplementedError("this model has no cache")
        cache = past_key_values if isinstance(past_key_values, QuirkyCache) else QuirkyCache(self.quirks)
        ids = input_ids[0].tolist()
        before = cache.state.length if cache.state is not None else 0
        start = len(ids) if use_cache else self.block_start(ids, before, attention_mask, keywords)
        rows, state = self.rows(cache.state, ids, start)
        if use_cache or self.quirks.get("always_writes"):
            cache.write(state if start == len(ids) else self.rows(cache.state, ids, len(ids))[1])
        logits = self.quirk(self.inner.head(rows), ids, start)
        return CausalLMOutputWithPast(
            logits=logits[-logits_to_keep:][None] if logits_to_keep else logits[None],
            past_key_values=cache if use_cache and not self.quirks.get("no_cache") else None,
        )

    def asked(self, attention_mask, keywords):
        return attention_mask is not None and attention_mask.dim() == 4

    def block_start(self, ids, before, attention_mask, keywords):
        """Where the block begins among `ids`; len(ids) where all of it is read causally."""
        kind = self.quirks.get("block", "aligned")
        size = self.config.block_size
        if kind == "aligned":
            return max(0, (before + len(ids) - 1) // size * size - before)
        if kind == "never":
            return len(ids)
        if kind == "mask":
            if not self.asked(attention_mask, keywords):
                return len(ids)
            visible = attention_mask[0, 0] >= 0
            ends = visible.long().cumsum(-1).argmax(-1).tolist()
            whole = [row for row, end in enumerate(ends) if end > before + row]
            if not whole:
                return len(ids) - 1
            return next(row for row in whole if ends[row] == before + len(ids) - 1) if ends else len(ids)
        return 0 if keywords.get("is_causal") is False else len(ids)  # kind == "is_causal"

    def rows(self, state, ids, start):
        """Output rows of `ids`, read causally up to `start` and as one block from there; the state after the former."""
        device = self.inner.embed_tokens.weight.device
        state = copied(state) or self.fresh()
        advances = [Span(0, state, ids[:start], state.length)] if start else []
        blocks = [Span(0, state, ids[start:], state.length + start)] if start < len(ids) else []
        state.reserve(len(ids))
        layout = RaggedPass(self.native, advances, blocks, device)
        rows = self.inner(self.inner.embed_tokens(layout.ids), layout)
        if start:
            state.advance(start, tuple(layout.recurrent[0]), None)
        return rows, state

    def fresh(self):
        weight = self.inner.embed_tokens.weight
        return NativeState(self.native, weight.dtype, weight.device)

    def quirk(self, logits, ids, start):
        if self.quirks.get("shifted") and start < len(ids):
            logits = torch.cat([logits[:start], logits[start + 1 :], logits[-1:]])
        if self.quirks.get("leak"):
            logits = logits + logits[-1] * 0.05
        if self.quirks.get("nan"):
            logits = logits.clone()
            logits[-1, 7] = float("nan")
        return logits

    def generate(self, input_ids=None, max_new_tokens=64, eos_token_id=None, **settings):
        """Greedy, token by token: this model's own way."""
        ids = input_ids[0].tolist()
        for _ in range(max_new_tokens):
            rows, _ = self.rows(None, ids, len(ids))
            ids.append(int(self.inner.head(rows[-1:]).argmax()))
            if ids[-1] == self.config.eos_token_id:
                break
        return torch.tensor([ids])
