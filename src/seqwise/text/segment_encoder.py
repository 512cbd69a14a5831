"""`SegmentEncoder`: encodes long texts, of which each distinct segment only once. Importing it imports numba."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from seqwise.text.patterns import END
from seqwise.text.segments import MAX_POOL_BYTES, SegmentTable, copy_ranges
from seqwise.text.tokenizer import EncodedText, Tokenizer

SEGMENTS_PER_TEXT = 2_000  # encoded as the lines of one text, and several such texts at once, on all cores


class SegmentEncoder:
    """Encodes one text after the other with a tokeniser of any kind but characters."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.table = SegmentTable()
        self.ids = np.zeros(0, dtype=np.int32)  # of all distinct segments, one segment after the other
        # Of each segment: where its ids start, how many they are, how many words it has, how many ids are <unk>.
        self.segment_info = np.zeros((4, 0), dtype=np.int64)

    def encode(self, *texts: str) -> EncodedText:
        """Returns the ids of the pieces of a text, one after the other, as `tokenizer.encode` gives them."""
        if self.table.num_bytes > MAX_POOL_BYTES:
            self.__init__(self.tokenizer)  # type: ignore[misc]  # forget all segments
        num_known = self.table.num_segments
        indices = self.table.index_texts(*texts)
        if self.table.num_segments > num_known:
            self._encode_segments(self.table.list_segments(num_known))
        starts, lengths, words, unknown = self.segment_info
        ids = np.empty(int(lengths[indices].sum()), dtype=np.int32)
        copy_ranges(indices, starts, lengths, self.ids, ids)
        # A word that is cut between two pieces is counted in both.
        num_cut_words = sum(not (text[-1].isspace() or next_text[0].isspace()) for text, next_text in pairwise(texts))
        return EncodedText(ids, int(words[indices].sum()) - num_cut_words, int(unknown[indices].sum()))

    def _encode_segments(self, segments: list[str]) -> None:
        """Encodes new segments. Those without a line break or <eos> are encoded as lines, which are independent."""
        newline = self.tokenizer.encode_many(["\n"])[0]
        is_line = np.array([segment != "\n" and END not in segment for segment in segments])
        lines, others = np.flatnonzero(is_line).tolist(), np.flatnonzero(~is_line).tolist()
        groups = [lines[start : start + SEGMENTS_PER_TEXT] for start in range(0, len(lines), SEGMENTS_PER_TEXT)]
        texts = ["\n".join([*(segments[index] for index in group), ""]) for group in groups]
        parts, lengths = [], []
        for ids in self.tokenizer.encode_many(texts):
            ends = np.flatnonzero(ids == newline[0])
            lengths.append(np.diff(ends, prepend=-1) - 1)
            parts.append(np.delete(ids, ends))
        for ids in self.tokenizer.encode_many([segments[index] for index in others]):
            lengths.append(np.array([len(ids)]))
            parts.append(ids)
        new_ids, borders = np.concatenate(parts), np.cumsum(np.concatenate([[0], *lengths]))
        unknown = np.cumsum(np.concatenate([[0], new_ids == self.tokenizer.unknown]))
        new_info = np.empty((4, len(segments)), dtype=np.int64)
        new_info[0, lines + others] = len(self.ids) + borders[:-1]
        new_info[1, lines + others] = np.diff(borders)
        new_info[2] = [len(segment.split()) for segment in segments]
        new_info[3, lines + others] = np.diff(unknown[borders])
        self.ids = np.concatenate([self.ids, new_ids.astype(np.int32)])
        self.segment_info = np.concatenate([self.segment_info, new_info], axis=1)
