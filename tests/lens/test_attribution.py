"""The three methods of attribution are right where the truth is known, for every family, and change nothing."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from seqwise.data.batch import TokenBatch
from seqwise.errors import UsageError
from seqwise.families import BUILTIN_FAMILIES
from seqwise.heads.ngrams import SCALE
from seqwise.layers.cells import LSTMCell
from seqwise.layers.recurrent import Recurrent
from seqwise.lens import attribution_ngrams
from seqwise.lens.attribution import attribute, attribution
from seqwise.lens.attribution_methods import compute_completeness_error, integrate_gradients
from seqwise.lens.subject import Subject, open_subject
from seqwise.page.figures import ImageOverlay, LineChart, TokenText
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.classify.model import Classifier, TextBatch
from seqwise.tasks.forecast.model import ForecastModel
from seqwise.tasks.forecast.windows import WindowBatch
from seqwise.tasks.inspection import Answer, InspectedInput
from seqwise.tasks.language.model import LanguageModel

FAMILIES = [family for family in BUILTIN_FAMILIES if family != "ngram"]
UNKNOWN, CUE = 1, 7


class SumOfProducts(nn.Module):
    """(1, T, D) → (1, 1, 1): the sum of all entries, each times its own weight."""

    def __init__(self, weight: torch.Tensor):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight * x).sum().view(1, 1, 1)


def make_settings(family: str) -> ResolvedSettings:
    return ResolvedSettings(
        model=family,
        data={"window": 16, "max_length": 16},
        network={"width": 8, "embedding": 8, "dropout": 0.3},
        transformer={"heads": 2, "hidden": 16},
        classify={"pooling": "mean"},
        context={"length": 4},
        forecast={"lookback": 12, "patch": 1, "linear": True},
        horizon=2,
    )


def classify(family: str, ids: list[int], model: Classifier | None = None) -> Subject:
    torch.manual_seed(3)
    model = model or Classifier(make_settings(family), 12, 2, unknown=UNKNOWN)
    batch = TextBatch(torch.tensor([ids]), torch.tensor([len(ids)]), torch.tensor([0]))

    def score(label: int):
        return lambda model: model.scores(batch.ids, batch.lengths).log_softmax(-1)[0, label]

    answers = [Answer("label: one", score(1), label=1), Answer("label: zero", score(0), label=0)]
    tokens = [str(token) for token in ids]
    inspected = InspectedInput("a text", " ".join(tokens), batch, tokens, answers=answers)
    return Subject(family, model, lambda: model(batch), tokens, inspected=inspected)


def predict_next(family: str, ids: list[int]) -> Subject:
    torch.manual_seed(3)
    model = LanguageModel(make_settings(family), 12)
    batch = TokenBatch(torch.tensor([ids]), torch.tensor([ids]))
    answer = Answer("next token: 2", lambda model: model.next(batch.ids)[0][0, 2])
    tokens = [str(token) for token in ids]
    inspected = InspectedInput("a text", "", batch, tokens, answers=[answer])
    return Subject(family, model, lambda: model(batch), tokens, inspected=inspected)


def forecast(family: str) -> Subject:
    torch.manual_seed(3)
    model = ForecastModel(make_settings(family), 0, ())
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.3)  # initially it forecasts the mean of the window
    past, future = torch.randn(1, 12).cumsum(1), torch.zeros(1, 2)
    batch = WindowBatch(past=past, future=future, mask=future == 0, known=torch.zeros(1, 14, 0))
    answer = Answer("step 2", lambda model: model.forecast(batch).point[0, 1], is_value=True)
    tokens = [f"{hour}:00" for hour in range(12)]
    inspected = InspectedInput("a window", "", batch, tokens, answers=[answer])
    return Subject(family, model, lambda: model(batch), tokens, inspected=inspected)


def test_of_a_linear_model_all_methods_are_known_by_hand():
    x = torch.tensor([[[1.0, 2.0], [3.0, -1.0], [2.0, 5.0]]])
    weight = torch.tensor([[1.0, 0.5], [-2.0, 1.0], [0.0, 3.0]])
    model = SumOfProducts(weight)
    products = [2.0, -7.0, 15.0]
    zero = attribution(model, x, baseline="zero").data
    assert zero["score"] == 10.0
    for method in ("gradient_times_input", "integrated_gradients", "leave_one_out"):
        np.testing.assert_allclose(zero[method], products, rtol=1e-6)
    mean = attribution(model, x).data  # the mean of the positions is (2, 2)
    from_mean = [-1.0 + 0.0, -2.0 - 3.0, 0.0 + 9.0]
    np.testing.assert_allclose(mean["gradient_times_input"], products, rtol=1e-6)
    np.testing.assert_allclose(mean["integrated_gradients"], from_mean, rtol=1e-6)
    np.testing.assert_allclose(mean["leave_one_out"], from_mean, rtol=1e-6)
    assert mean["agreement"]["integrated gradients / leave-one-out"] == pytest.approx(1.0)


def test_integrated_gradients_of_a_square_are_half_its_gradient_times_input():
    model = SumOfProducts(torch.ones(3, 2))
    x = torch.tensor([[1.0, 2.0], [3.0, -1.0], [0.0, 5.0]])
    result = integrate_gradients(lambda values: model(values[None] ** 2).sum(), x, torch.zeros_like(x))
    np.testing.assert_allclose(result.contributions, [5.0, 10.0, 25.0], rtol=1e-6)
    assert result.num_points == 8


def test_more_points_are_used_until_the_sum_is_right():
    x = torch.tensor([[10.0]])
    result = integrate_gradients(lambda values: torch.sigmoid(40 * (values - 3.3)).sum(), x, torch.zeros_like(x))
    assert result.num_points > 8
    assert result.error <= 0.01


def test_the_completeness_error_is_relative_to_the_change():
    assert compute_completeness_error(np.array([3.0, -1.0]), 2.5) == pytest.approx(0.2)
    assert compute_completeness_error(np.array([1.0, -1.0]), 0.0) == 0.0
    assert compute_completeness_error(np.zeros(2), 0.0) == 0.0


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("build", [lambda f: classify(f, [3, 4, 5, 6, 7]), lambda f: predict_next(f, [3, 4, 5, 6, 7]),
                                   forecast], ids=["classify", "language", "forecast"])  # fmt: skip
def test_contributions_sum_to_the_change_of_the_answer(family: str, build):
    subject = build(family)
    data = attribute(subject).data
    inspected = subject.inspected
    assert data["completeness_error"] <= 0.01
    subject.module.eval()
    if isinstance(inspected.batch, WindowBatch):
        batch = replace(inspected.batch, past=inspected.batch.past.mean().expand(1, 12))
        at_baseline = float(subject.module.forecast(batch).point[0, 1])
    else:
        vectors = subject.module.embedding.weight.mean(0).expand(1, 5, -1)
        if isinstance(subject.module, LanguageModel):
            at_baseline = float(subject.module.head(subject.module.backbone(vectors).vectors[:, -1])[0, 2])
        else:
            states = subject.module.encoder(vectors, lengths=inspected.batch.lengths).vectors
            at_baseline = float(subject.module.head(states, inspected.batch.lengths).log_softmax(-1)[0, 1])
    change = data["score"] - at_baseline
    assert data["integrated_gradients"].sum() == pytest.approx(change, rel=0.011, abs=1e-6)


@pytest.mark.parametrize("family", ["lstm", "transformer"])
def test_leave_one_out_equals_two_forward_passes(family: str):
    subject = classify(family, [3, 4, 5, 6])
    data = attribute(subject, answer="label: zero").data
    assert data["replacement"] == "the vector of <unk>"
    model = subject.module.eval()
    with torch.no_grad():
        for position in range(4):
            ids = torch.tensor([[3, 4, 5, 6]])
            full = model.scores(ids, torch.tensor([4])).log_softmax(-1)[0, 0]
            ids[0, position] = UNKNOWN
            changed = model.scores(ids, torch.tensor([4])).log_softmax(-1)[0, 0]
            assert data["leave_one_out"][position] == pytest.approx(float(full - changed), abs=1e-6)


@pytest.mark.parametrize("family", ["gru", "transformer"])
def test_a_planted_cue_word_contributes_most(family: str):
    subject = classify(family, [3, 5, 9, CUE, 4, 8])
    model, generator = subject.module, torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        ids = torch.randint(2, 12, (64, 6), generator=generator)
        ids[ids == CUE] = 2
        labels = torch.randint(0, 2, (64,), generator=generator)
        places = torch.randint(0, 6, (64,), generator=generator)
        ids[torch.arange(64), places] = torch.where(labels == 1, CUE, ids[torch.arange(64), places])
        optimizer.zero_grad()
        loss, _ = model(TextBatch(ids, torch.full((64,), 6), labels))
        (loss.total / loss.count).backward()
        optimizer.step()
    model.zero_grad()
    view = attribute(classify(family, [3, 5, 9, CUE, 4, 8], model))
    for method in ("integrated_gradients", "leave_one_out"):
        assert int(np.argmax(view.data[method])) == 3, method
    assert f"'{CUE}'" in view.summary[0]


def test_tokens_after_the_answer_of_a_causal_model_contribute_nothing():
    subject = predict_next("lstm", [3, 4, 5, 6, 7])
    inspected = subject.inspected
    early = Answer("third", lambda model: -model.losses(inspected.batch)[0][0, 2], position=2)
    data = attribute(replace(subject, inspected=replace(inspected, answers=[early]))).data
    for method in ("integrated_gradients", "gradient_times_input", "leave_one_out"):
        np.testing.assert_array_equal(data[method][3:], 0.0)
        assert np.all(data[method][:3] != 0)


def test_an_answer_may_be_computed_from_the_beginning_of_the_text_alone():
    subject = predict_next("transformer", [3, 4, 5, 6, 7])
    inspected = subject.inspected
    whole = Answer("from all", lambda model: -model.losses(inspected.batch)[0][0, 2])
    beginning = Answer("from three", lambda model: model.next(inspected.batch.ids[:, :3])[0][0, 5])
    subject = replace(subject, inspected=replace(inspected, answers=[whole, beginning]))
    expected, actual = attribute(subject, answer=1).data, attribute(subject, answer=2).data
    for method in ("integrated_gradients", "gradient_times_input", "leave_one_out"):
        np.testing.assert_allclose(actual[method], expected[method], atol=1e-5)


@pytest.mark.parametrize("task", ["classify", "tag", "translate", "masked", "caption", "forecast", "language"])
def test_runs_of_every_task_have_contributions_that_sum_to_the_change(task: str, small_run):
    view = attribution(small_run(task, "gru"))
    assert view.data["completeness_error"] <= 0.01
    assert len(view.data["tokens"]) == len(view.data["integrated_gradients"])


def test_figures_suit_the_input():
    text = attribute(classify("lstm", [3, 4, 5, 6]))
    assert [type(figure) for figure in text.figures[:3]] == [TokenText] * 3
    assert isinstance(attribute(forecast("lstm")).figures[0], LineChart)
    subject = classify("lstm", [3, 4, 5, 6])
    image = np.zeros((8, 8, 3), dtype=np.uint8)
    overlay = attribute(replace(subject, inspected=replace(subject.inspected, image=image))).figures[0]
    assert isinstance(overlay, ImageOverlay)
    assert overlay.weights.shape == (3, 2, 2)
    assert all(str(view) for view in (text, attribute(forecast("gru"))))


def test_attribution_changes_nothing():
    for subject in (classify("gru", [3, 4, 5]), forecast("lstm")):
        subject.module.train()
        state, tensors = torch.get_rng_state(), subject.inspected.batch.tensors()
        attribute(subject)
        assert torch.equal(torch.get_rng_state(), state), "no random number is drawn"
        assert all(part.training for part in subject.module.modules())
        assert all(parameter.grad is None for parameter in subject.module.parameters())
        assert not any(part._forward_hooks for part in subject.module.modules())
        assert all(tensor is tensors[name] for name, tensor in subject.inspected.batch.tensors().items())


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"answer": 3}, "there is no answer 3.\nChoose from: 1 .label: one., 2 .label: zero."),
        ({"answer": 0}, "there is no answer 0"),
        ({"answer": "label: two"}, "there is no answer 'label: two'"),
        ({"answer": -1}, "there is no answer -1"),
        ({"baseline": "noise"}, "there is no baseline 'noise'"),
    ],
)
def test_wrong_arguments_are_errors(arguments: dict, problem: str):
    with pytest.raises(UsageError, match=problem):
        attribute(classify("rnn", [3, 4]), **arguments)


def test_wrong_inputs_of_a_plain_module_are_errors():
    layer = Recurrent(LSTMCell(3, 4))
    assert attribution(layer, torch.randn(1, 5, 3), answer=2).data["integrated_gradients"].shape == (5,)
    with pytest.raises(UsageError, match="no unit 4"):
        attribution(layer, torch.randn(1, 5, 3), answer=4)
    with pytest.raises(UsageError, match=r"expected the vectors \(1, T, D\) of one sequence, received \(2, 5, 3\)"):
        attribution(layer, torch.randn(2, 5, 3))


def test_an_answer_without_the_input_is_an_error():
    subject = classify("lstm", [3, 4])
    constant = Answer("constant", lambda model: torch.ones(()))
    with pytest.raises(UsageError, match="not computed from the vectors"):
        attribute(replace(subject, inspected=replace(subject.inspected, answers=[constant])))


def test_the_name_of_a_label_goes_before_its_number(small_run):
    subject = open_subject(small_run("classify", "gru"), "a good film")
    first, second = subject.inspected.answers[:2]
    answers = (replace(first, name="label: 1"), replace(second, name="label: 0"))
    subject = replace(subject, inspected=replace(subject.inspected, answers=answers))
    assert attribute(subject, answer=1).data["answer"] == "label: 1"
    assert attribute(subject, answer="0").data["answer"] == "label: 0"
    assert attribute(subject, answer="label: 0").data["answer"] == "label: 0"


def build_ngram_classifier(ids: list[int], order: int = 2) -> Classifier:
    settings = make_settings("gru")
    settings.classify.ngrams, settings.classify.ngram_buckets = order, 64
    torch.manual_seed(3)
    model = Classifier(settings, 12, 2, unknown=UNKNOWN).eval()
    model.ngrams.count_ratios([np.array(ids), np.array([3, 6])], np.array([1, 0]))
    nn.init.normal_(model.ngrams.weight)
    nn.init.normal_(model.ngrams.bias)
    return model


@pytest.mark.parametrize("ids", [[3, CUE, 5, 3, CUE, 4], [3, CUE], [5]])
def test_the_contributions_of_ngrams_sum_to_their_part_of_the_logit(ids: list[int]):
    model = build_ngram_classifier(ids, order=3)
    subject = classify("gru", ids, model)
    view = attribute(subject, answer=1)
    parts, batch = view.data["ngrams"], subject.inspected.batch
    with torch.no_grad():
        network, ngrams = (each[0].numpy() for each in model.compute_scores_by_part(batch.ids, batch.lengths))
    np.testing.assert_allclose(parts["contributions"].sum(axis=0) + parts["bias"], ngrams / 2, atol=1e-6)
    np.testing.assert_allclose(parts["network"], network / 2, atol=1e-6)
    assert parts["labels"] == ["label: zero", "label: one"]
    row = {name: values for name, *values in view.figures[-1].rows}
    assert row["all n-grams and bias"][1:] == pytest.approx([ngrams[1] / 2, ngrams[0] / 2], abs=1e-6)
    assert row["logit"][1] == pytest.approx((network[1] + ngrams[1]) / 2, abs=1e-6)
    assert view.figures[-1].columns == ("n-gram", "times", "label: one", "label: zero")


def test_each_ngram_is_listed_once_with_all_its_occurrences():
    ids = [3, CUE, 5, 3, CUE, 4]
    model = build_ngram_classifier(ids)
    parts = attribute(classify("gru", ids, model), answer=1).data["ngrams"]
    counts = dict(zip(parts["names"], parts["counts"], strict=True))
    assert sum(counts.values()) == 6 + 5
    assert counts[f"3{CUE}"] == counts["3"] == 2, "tokens of one character have no space between them"
    products = (model.ngrams.weight * model.ngrams.ratios).detach()
    pair = model.ngrams.find_rows_by_length(torch.tensor([[3, CUE]]))[1][0, 0]
    for name, row in (("3", 3), (f"3{CUE}", pair)):
        expected = 2 * SCALE / 11**0.5 * products[row] / 2  # two occurrences, half of the logit
        np.testing.assert_allclose(parts["contributions"][parts["names"].index(name)], expected, rtol=1e-5)


def test_the_strongest_ngrams_are_listed_and_the_others_are_summed(monkeypatch):
    monkeypatch.setattr(attribution_ngrams, "MAX_NGRAMS", 2)
    ids = [3, CUE, 5, 4]
    view = attribute(classify("gru", ids, build_ngram_classifier(ids)), answer=2)
    contributions = view.data["ngrams"]["contributions"][:, 0]
    rows = view.figures[-1].rows
    assert [abs(row[2]) for row in rows[:2]] == pytest.approx(sorted(abs(contributions), reverse=True)[:2])
    assert rows[2][0] == "5 other n-grams"
    assert sum(row[2] for row in rows[:3]) == pytest.approx(contributions.sum())


def test_a_classifier_without_ngrams_lists_none():
    view = attribute(classify("gru", [3, 4, 5]))
    assert "ngrams" not in view.data
    assert len(view.figures) == 5


def test_a_position_stands_for_the_ngrams_that_contain_it():
    ids = [3, CUE, 5, 4]
    model = build_ngram_classifier(ids)
    subject = classify("gru", ids, model)
    view = attribute(subject, answer=1)
    batch = subject.inspected.batch
    scores, score = model.compute_scores_by_part(batch.ids, batch.lengths), view.data["score"]
    for position in range(4):
        presence = torch.ones(1, 4)
        presence[0, position] = 0.0
        replaced = batch.ids.clone()
        replaced[0, position] = UNKNOWN
        parts = (
            model.compute_scores_by_part(replaced, batch.lengths)[0],
            model.ngrams(batch.ids, batch.lengths, presence),
        )
        expected = score - float((sum(parts) / 2).log_softmax(-1)[0, 1])
        assert view.data["leave_one_out"][position] == pytest.approx(expected, abs=1e-5)
    assert score == pytest.approx(float((sum(scores) / 2).log_softmax(-1)[0, 1]), abs=1e-6)
    assert view.data["completeness_error"] < 0.01
    with torch.no_grad():  # at the baseline the network reads the mean vector, and there are no n-grams
        mean_vectors = model.embedding.weight.mean(0).expand(1, 4, -1)
        network = model.head(model.encoder(mean_vectors, lengths=batch.lengths).vectors, batch.lengths)
        at_baseline = float(((network + model.ngrams.bias) / 2).log_softmax(-1)[0, 1])
    change = float(score) - at_baseline
    assert abs(change) > 0.1
    assert float(view.data["integrated_gradients"].sum()) == pytest.approx(change, rel=0.01)
    assert view.data["replacement"] == "the vector of <unk>, without its n-grams"
    assert len(view.data["integrated_gradients"]) == 4
    assert torch.equal(model.scores(batch.ids, batch.lengths), sum(scores) / 2), "the model stays as it was"
