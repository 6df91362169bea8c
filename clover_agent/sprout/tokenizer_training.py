"""Trains sprout's tokenizer: byte-level BPE of 4,096 tokens, made for copying and for JSON.

    python -m clover_agent.sprout.tokenizer_training --records FILE… --schemas FILE… --out tokenizer.json

Single digits; `_` alone; camelCase is cut at its humps; JSON's joints (`": "`, `", "`, `"}}`) are tokens. Words are
learnt without their leading space, and the spaced form of a token is added as a merge of its own after all others. So
" Paris" is always the space joined to the first piece of "Paris": a value copied from a sentence into a JSON string
keeps its cut.
"""

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from clover_agent.sprout.dataset import MixOptions, examples
from clover_agent.sprout.rendering import CONTROL, TEMPLATE, conversation_of, segments_of
from clover_agent.templates import ChatTemplate, template_source

VOCABULARY = 4096
SPACE = "Ġ"
WORD = r"(?:\p{Lu}?[\p{Ll}\p{M}]+|\p{Lu}+(?!\p{Ll})|\p{L}\p{M}*)"
JOINT = r'"[\]}]*[:,] [\[{]*"?|"[\]}]+|[\[{]+"|[\]}]*, [\[{]*"'
REST = r"\p{N}|_|\n+| ?[^\s\p{L}\p{N}_\"]+|\s+(?!\S)|\s+|."
PATTERN = rf"{JOINT}| ?{WORD}|{REST}"
PATTERN_SPACE_APART = rf"{JOINT}|{WORD}|{REST}"


def train_tokenizer(texts: Iterable[str]) -> Tokenizer:
    """A tokenizer trained on rendered text, `CONTROL` as its first tokens (added ones: never made of text)."""
    texts = list(texts)
    bare = _tokenizer(models.BPE(), PATTERN_SPACE_APART)
    size = (VOCABULARY - len(CONTROL) - 256) // 2 + 256 + 310
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False, min_frequency=3
    )
    bare.train_from_iterator(texts, trainer)
    learnt = json.loads(bare.to_str())["model"]
    vocabulary: list[str] = sorted(learnt["vocab"], key=learnt["vocab"].__getitem__)
    merges: list[tuple[str, str]] = [(first, second) for first, second in learnt["merges"]]
    for piece in _spaced_pieces(bare, texts)[: VOCABULARY - len(CONTROL) - len(vocabulary)]:
        merges.append((SPACE, piece))
        vocabulary.append(SPACE + piece)
    ids = {token: number + len(CONTROL) for number, token in enumerate(vocabulary)}
    final = _tokenizer(models.BPE(vocab={**{c: n for n, c in enumerate(CONTROL)}, **ids}, merges=merges), PATTERN)
    final.add_special_tokens([AddedToken(control, special=True, normalized=False) for control in CONTROL])
    return final


def _tokenizer(model: models.BPE, pattern: str) -> Tokenizer:
    tokenizer = Tokenizer(model)
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _spaced_pieces(bare: Tokenizer, texts: list[str]) -> list[str]:
    """The first pieces of words that follow a space, most frequent first."""
    counts: Counter[str] = Counter()
    for encoding in bare.encode_batch(texts[: 1 << 14]):
        for before, piece in zip(encoding.tokens, encoding.tokens[1:], strict=False):
            if before == SPACE and piece.isalpha() and SPACE not in piece:
                counts[piece] += 1
    return [piece for piece, _ in counts.most_common()]


def rendered(options: MixOptions) -> Iterator[str]:
    """The training mix as text, prompt and response."""
    template = ChatTemplate(template_source(TEMPLATE), CONTROL)
    for example, _ in examples(options):
        prompt = template.render(conversation_of(example))
        yield "".join(segment.text for segment in (*prompt.segments, *segments_of(example)) if not segment.trusted)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=Path, nargs="+", required=True, help="records in the shared format")
    parser.add_argument("--schemas", type=Path, nargs="+", required=True, help="tool schemas, one JSON object a line")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--examples", type=int, default=30_000)
    arguments = parser.parse_args()
    options = MixOptions(tuple(arguments.records), tuple(arguments.schemas), arguments.examples, seed=1)
    tokenizer = train_tokenizer(islice(rendered(options), arguments.examples))
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(arguments.out))


if __name__ == "__main__":
    main()
