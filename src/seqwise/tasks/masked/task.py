"""Masked language modelling: predict masked tokens from both sides, from raw text to filled text.

    text → tokens → windows with masked tokens → embedding → encoder → softmax → negative log likelihood
                                                                         └→ the most probable tokens

This module connects the parts: `masking.py` masks tokens, `model.py` has the models, `filling.py` fills in `[MASK]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.config import Settings
from seqwise.data.batch import spread_batches
from seqwise.data.corpus.batching import WindowLoader
from seqwise.data.corpus.sources import Corpus
from seqwise.data.corpus.store import TokenStore
from seqwise.errors import DataError, UsageError
from seqwise.families import get_family
from seqwise.files import check_output_path
from seqwise.metrics.evaluation import Evaluation, exp_or_inf
from seqwise.metrics.predictions import write_predictions
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.corpus_task import CorpusTask, find_training_blocks
from seqwise.tasks.inspection import InspectedInput
from seqwise.tasks.language.scoring import measure_block_overlap
from seqwise.tasks.latency import Stopwatch
from seqwise.tasks.masked.filling import (
    MASK,
    PAD,
    build_block_examples,
    fill_masks,
    iterate_block_predictions,
    sum_blocks,
)
from seqwise.tasks.masked.inspection import inspect_store, inspect_text
from seqwise.tasks.masked.masking import MaskedEvaluationLoader, MaskedWindowLoader, MaskSampler
from seqwise.tasks.masked.model import (
    MIN_WINDOW,
    BidirectionalLanguageModel,
    Model,
    build_model,
    get_window,
    set_masked_defaults,
)
from seqwise.tasks.task import InferenceOptions, LatencyInputs, ModelBundle, Prediction, Preprocessor, ProcessGroup
from seqwise.text.tokenizer import Tokenizer

EVALUATION_BATCH_SIZE = 32  # windows
MAX_LATENCY_INPUTS = 100
EXAMPLE = "the [MASK] of"  # an input for the model card

DEFINITIONS = {
    "perplexity": "exp(N / masked_tokens), N the nats of the masked tokens; depends on the tokeniser",
    "accuracy": "share of the masked tokens whose most probable token is the true one",
    "masked_tokens": "tokens masked by fixed masks: the same for every run with this tokeniser, rate and text",
    "bidirectional_perplexity": "exp of the mean nats per token of both directions, nothing masked",
    "forward_perplexity": "of each token from those before it in the window",
    "backward_perplexity": "of each token from those after it in the window",
}


class Masked(CorpusTask):
    """The masked language modelling task on one corpus."""

    special_tokens = (PAD, MASK)
    set_defaults = staticmethod(set_masked_defaults)
    primary_metric = ("perplexity", "masked ppl")

    def __init__(self, corpus: Corpus, tokenizer: Tokenizer, stores: dict[str, TokenStore]):
        super().__init__(corpus, tokenizer, stores)
        self.preprocessor.attributes["example"] = EXAMPLE

    @classmethod
    def adapt_tokenizer(cls, kind: str, reason: str, settings: Settings) -> tuple[str, str]:
        """Returns words or wordpieces, never characters: from masked characters a model would learn spelling only."""
        if kind == "characters":
            if settings.text.min_count is not None:
                return "words", "words, because the text is smaller than 2 MB."
            settings.text.min_count = 2  # one occurrence is too few to learn a meaning
            return "words", "words that occur at least twice, because the text is smaller than 2 MB."
        return ("wordpiece", reason.replace("bpe", "wordpiece")) if kind == "bpe" else (kind, reason)

    def check_settings(self, settings: ResolvedSettings) -> None:
        recurrent = settings.recurrent
        if get_family(settings.model).is_recurrent and (not recurrent.bidirectional or recurrent.concat_directions):
            raise UsageError(
                "to fill in masks, a recurrent model reads in two directions that do not see each other: otherwise it "
                "would see what it predicts.",
                fix="Leave out --recurrent.bidirectional and --recurrent.concat-directions.",
            )
        if settings.data.window == "full" or settings.data.window < MIN_WINDOW:
            raise UsageError(
                f"--data.window: expected a number of at least {MIN_WINDOW}; received {settings.data.window}.",
                fix="Leave it out, or set it to 64.",
            )
        build_evaluation_batches(self.stores["valid"], self.tokenizer, settings)

    def check_shapes(self, model: Model) -> None:
        model.states(torch.zeros(1, MIN_WINDOW, dtype=torch.int64, device="meta"))

    def build(self, settings: ResolvedSettings) -> Model:
        """Returns an untrained model that already predicts each token by its frequency."""
        return build_model(settings, len(self.tokenizer), self.counts)

    def batches(self, settings: ResolvedSettings, rank: int = 0, world_size: int = 1) -> MaskedWindowLoader:
        batch_size, window = settings.training.batch_size, settings.data.window
        windows = WindowLoader(self.stores["train"], batch_size, window, settings.seed, rank, world_size)
        sampler = build_mask_sampler(self.tokenizer, settings)
        return MaskedWindowLoader(windows, sampler, get_family(settings.model).is_recurrent)

    def validate(
        self, model: Model, settings: ResolvedSettings, world: ProcessGroup, share: float = 1.0
    ) -> dict[str, float]:
        """Returns loss, perplexity and accuracy on the validation split, whose batches are divided among the processes.

        The `objective`, which selects the best weights, is the loss of the masked tokens; the `loss` of a bidirectional
        language model is its training loss, of both directions.
        """
        batches = build_evaluation_batches(self.stores["valid"], self.tokenizer, settings)
        sums = world.sum(*score_masked_tokens(model, batches, world.rank, world.size, share))
        objective, num_targets, nats, num_correct, num_masked = sums
        return {
            "loss": objective / num_targets,
            "perplexity": exp_or_inf(nats / num_masked),
            "accuracy": num_correct / num_masked,
            "objective": nats / num_masked,
        }

    # Inference with a trained model, without the training data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> Model:
        return build_model(settings, len(preprocessor.tokenizer))

    @classmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        """Returns perplexity and accuracy of masked tokens, on the test split of the training data or a whole text."""
        model, settings, tokenizer = bundle.model, bundle.settings, bundle.preprocessor.tokenizer
        check_output_path(options.out)
        store, description = cls.open_store(bundle, data, split)
        batches = build_evaluation_batches(store, tokenizer, settings)
        predictions: list[tuple[Tensor, Tensor, Tensor]] = []
        with Stopwatch() as watch:
            sums = score_masked_tokens(model, batches, progress=options.progress, predictions=predictions)
        _, _, nats, num_correct, num_masked = sums
        metrics = {
            "perplexity": exp_or_inf(nats / num_masked),
            "accuracy": num_correct / num_masked,
            "masked_tokens": num_masked,
        }
        method = f"{settings.masked.rate:.0%} of the tokens masked, in windows of {batches.window}; "
        if isinstance(model, BidirectionalLanguageModel):
            method += "both directions together: p(x | left) · p(x | right) / p(x), normalised; "
            metrics |= score_directions(model, batches)
        if options.out is not None:
            write_predictions(options.out, iterate_block_predictions(predictions, store, tokenizer))
        training = bundle.training
        warnings: tuple[str, ...] = ()
        if unknown := store.info.unknown:
            warnings = (f"{unknown / len(store):.1%} of the tokens ({unknown:,}) are <unk>, which is never masked.",)
        examples = build_block_examples(predictions, store, tokenizer) if options.examples else None
        method += model.output.describe()
        block_sums, overlap = sum_blocks(predictions, store), None
        if training is not None:
            overlap = measure_block_overlap(*find_training_blocks(training, store), block_sums)
        targets = torch.cat([batch.targets[batch.target_mask] for batch in batches.epoch()])
        counts = torch.bincount(targets, minlength=len(tokenizer)).numpy()
        return Evaluation(
            metrics,
            DEFINITIONS,
            description,
            method,
            warnings=warnings,
            seconds=watch.seconds,
            examples=examples,
            primary_metric="perplexity",
            baselines=cls.compute_baselines(bundle, counts),
            overlap=overlap,
        )

    @classmethod
    def latency_inputs(cls, bundle: ModelBundle, data: str, split: str) -> LatencyInputs:
        """Returns windows of the split whose middle token is masked."""
        store, _ = cls.open_store(bundle, data, split)
        window, tokenizer = min(get_window(bundle.settings), len(store)), bundle.preprocessor.tokenizer
        texts, middle = [], window // 2
        for start in range(0, len(store) - window + 1, max(window, len(store) // MAX_LATENCY_INPUTS)):
            ids = store.read(start, window)
            texts.append(f"{tokenizer.decode(ids[:middle])} [MASK] {tokenizer.decode(ids[middle + 1 :])}")
        return texts, lambda text: list(cls.predict(bundle, [text], InferenceOptions()))

    @classmethod
    def inspect_text(cls, bundle: ModelBundle, text: str) -> InspectedInput:
        return inspect_text(bundle, text)

    @classmethod
    def inspect_split(
        cls, bundle: ModelBundle, data: str, split: str, count: int, progress: ProgressCallback = no_progress
    ) -> list[InspectedInput]:
        sampler = build_mask_sampler(bundle.preprocessor.tokenizer, bundle.settings)
        return inspect_store(bundle, *cls.open_store(bundle, data, split), count, sampler, progress)

    @classmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: InferenceOptions) -> Iterator[Prediction]:
        """Yields the most probable tokens of each [MASK], and the text with the best of them."""
        window = get_window(bundle.settings)
        return fill_masks(bundle.model, bundle.preprocessor.tokenizer, inputs, window, options.top)


def build_mask_sampler(tokenizer: Tokenizer, settings: ResolvedSettings) -> MaskSampler:
    """Returns the sampler of masks for a vocabulary, with the rate of the settings."""
    return MaskSampler(
        settings.masked.rate, tokenizer.id(MASK), len(tokenizer.specials), len(tokenizer), tokenizer.unknown
    )


def build_evaluation_batches(
    store: TokenStore, tokenizer: Tokenizer, settings: ResolvedSettings
) -> MaskedEvaluationLoader:
    """Returns batches with fixed masks; raises an error if no token is masked."""
    window = get_window(settings)
    batches = MaskedEvaluationLoader(
        store,
        build_mask_sampler(tokenizer, settings),
        EVALUATION_BATCH_SIZE,
        window,
        get_family(settings.model).is_recurrent,
    )
    if not any(bool(batch.target_mask.any()) for batch in batches.epoch()):
        raise DataError(
            f"the {store.info.split or 'data'} text has {len(store):,} tokens, and the fixed masks mask none of them.",
            fix="Give more text, or a larger --data.valid-fraction, --data.test-fraction or --masked.rate.",
        )
    return batches


@torch.no_grad()
def score_masked_tokens(
    model: Model,
    batches: MaskedEvaluationLoader,
    rank: int = 0,
    world_size: int = 1,
    share: float = 1.0,
    progress: ProgressCallback = no_progress,
    predictions: list[tuple[Tensor, Tensor, Tensor]] | None = None,
) -> tuple[float, int, float, int, int]:
    """Returns sums over this process's batches, of which a `share` is scored.

    They are the training loss and its number of targets; then, of the masked tokens, the nats, the number of correct
    predictions, and the number of tokens. Positions, nats and predictions of the masked tokens of each batch are
    appended to `predictions`, unless it is None.
    """
    model.eval()
    device = model.embedding.weight.device
    objective, num_targets, nats, num_correct, num_masked = 0.0, 0, 0.0, 0, 0
    for index, batch in enumerate(spread_batches(batches, share)):
        if index % world_size == rank:
            scores = model.score(batch.to(device))
            if predictions is not None and batch.positions is not None:
                rows, columns = batch.target_mask.nonzero(as_tuple=True)
                predictions.append((batch.positions[rows] + columns, scores.nats.cpu(), scores.predictions.cpu()))
            objective += float(scores.objective.total)
            num_targets += scores.objective.count
            nats += float(scores.nats.sum())
            num_correct += int((scores.predictions == scores.targets).sum())
            num_masked += len(scores.targets)
        progress(index + 1, batches.steps)
    return objective, num_targets, nats, num_correct, num_masked


@torch.no_grad()
def score_directions(model: BidirectionalLanguageModel, batches: MaskedEvaluationLoader) -> dict[str, float]:
    """Returns the perplexity of each direction as a language model, and of both together."""
    sums = torch.zeros(2, 2, dtype=torch.float64)
    for batch in batches.epoch():
        losses = model.compute_direction_losses(batch.to(model.embedding.weight.device))
        sums += torch.tensor([[float(loss.total), loss.count] for loss in losses], dtype=torch.float64)
    (forward_nats, forward_count), (backward_nats, backward_count) = sums.tolist()
    return {
        "bidirectional_perplexity": exp_or_inf((forward_nats + backward_nats) / (forward_count + backward_count)),
        "forward_perplexity": exp_or_inf(forward_nats / forward_count),
        "backward_perplexity": exp_or_inf(backward_nats / backward_count),
    }
