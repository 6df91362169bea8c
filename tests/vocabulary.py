"""A small byte-level BPE tokenizer for tests, built in milliseconds: all bytes, some merges, control tokens."""

import json
from functools import cache
from typing import Any

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from clover_agent.tokenizer import Tokenizer

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|mask|>")
MERELY_ADDED = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
TEXT = (
    'user\nassistant\nsystem\n{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}\n',
    "<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</function>\nThe weather in Paris is fine.\n",
    "import os\n    return None\n日本語 émoji 🙂 naïve café\ntool_call think im_start im_end endoftext mask response\n",
)


@cache
def definition() -> dict[str, Any]:
    """The content of its tokenizer.json."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=500,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=list(SPECIAL),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXT * 4, trainer)
    tokenizer.add_tokens([AddedToken(text, special=False, normalized=False) for text in MERELY_ADDED])
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    return content


@cache
def small_tokenizer() -> Tokenizer:
    return Tokenizer(definition())
