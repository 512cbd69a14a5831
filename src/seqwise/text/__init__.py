"""Text → token ids and back, with the character positions kept. It knows nothing of files, batches or tensors."""

from __future__ import annotations

from seqwise.text.patterns import END, UNKNOWN
from seqwise.text.pipelines import choose_tokenizer
from seqwise.text.tokenizer import Encoding, Tokenizer

__all__ = ["END", "UNKNOWN", "Encoding", "Tokenizer", "choose_tokenizer"]
