"""Errors of spans by kind, on hand-written sentences."""

import pytest
import torch

from seqwise.heads.tag import IndependentTagHead, LinearChainCRF, compute_log_marginal, compute_marginals
from seqwise.tasks.tag.span_errors import KINDS, classify_span, count_span_errors, find_spurious
from seqwise.tasks.tag.spans import extract_spans

# Ann Lee met the Bank of Oslo in New York .
TRUE = extract_spans(["B-PER", "I-PER", "O", "O", "B-ORG", "I-ORG", "I-ORG", "O", "B-LOC", "I-LOC", "O"])


@pytest.mark.parametrize(
    ("predicted", "kinds"),
    [
        ("B-PER I-PER O O B-ORG I-ORG I-ORG O B-LOC I-LOC O", ["correct", "correct", "correct"]),
        ("B-LOC I-LOC O O O O O O O O O", ["wrong type", "missed", "missed"]),
        ("B-PER O O O O O B-LOC O B-PER B-LOC O", ["wrong boundary", "both wrong", "wrong boundary"]),
        ("O O O O B-ORG I-ORG I-ORG I-ORG I-ORG I-ORG O", ["missed", "wrong boundary", "both wrong"]),
    ],
)
def test_each_true_span_has_one_kind(predicted: str, kinds: list[str]):
    spans = extract_spans(predicted.split())
    assert [classify_span(span, spans) for span in TRUE] == kinds


def test_a_span_is_spurious_if_no_true_span_shares_a_word_with_it():
    predicted = extract_spans(["B-PER", "O", "B-LOC", "O", "O", "O", "O", "O", "O", "O", "B-ORG"])
    assert find_spurious(TRUE, predicted) == [("LOC", 2, 3), ("ORG", 10, 11)]


def test_kinds_are_counted_by_type():
    sentences = [
        (TRUE, extract_spans(["B-PER", "I-PER", "O", "O", "B-ORG", "I-ORG", "O", "O", "B-PER", "I-PER", "B-LOC"])),
        ([("PER", 0, 1)], []),
    ]
    counts = count_span_errors(sentences, ["LOC", "ORG", "PER"])
    table = {name: dict(zip(KINDS, row)) for name, row in zip(["LOC", "ORG", "PER"], counts.tolist())}
    assert table["LOC"] == dict.fromkeys(KINDS, 0) | {"wrong type": 1, "spurious": 1}
    assert table["ORG"] == dict.fromkeys(KINDS, 0) | {"wrong boundary": 1}
    assert table["PER"] == dict.fromkeys(KINDS, 0) | {"correct": 1, "missed": 1}


@pytest.mark.parametrize("head_class", [IndependentTagHead, LinearChainCRF])
def test_marginals_of_all_tags_are_those_computed_one_by_one(head_class):
    torch.manual_seed(0)
    head = head_class(4, 3)
    if head_class is LinearChainCRF:
        with torch.no_grad():
            head.transition_scores.normal_()
            head.start_scores.normal_()
    scores, lengths = head.scores(torch.randn(2, 5, 4)), torch.tensor([5, 3])
    marginals = compute_marginals(scores, lengths, head.transitions())
    torch.testing.assert_close(marginals[0].sum(-1), torch.ones(5))
    torch.testing.assert_close(marginals[1].sum(-1), torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0]))
    for position in range(3):
        for tag in range(3):
            expected = compute_log_marginal(scores, lengths, head.transitions(), position, tag).exp()
            torch.testing.assert_close(marginals[:, position, tag], expected.detach())
    if head_class is IndependentTagHead:
        torch.testing.assert_close(marginals[0], scores[0].softmax(-1).detach())
