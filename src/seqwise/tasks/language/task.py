"""Language modelling: predict the next token, from raw text to generated text.

    text → tokens → streams or windows → embedding → backbone → next-token head → negative log likelihood
                                                                              └→ sampling → text

This module connects the parts; each is explained in its own module.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from seqwise.callbacks import ProgressCallback, no_progress
from seqwise.config import MAX_NEW_TOKENS
from seqwise.data.corpus.batching import RotatedStreamLoader, StreamLoader, WindowLoader
from seqwise.data.corpus.store import TokenStore
from seqwise.decoding.generate import generate
from seqwise.decoding.options import SamplingOptions
from seqwise.errors import UsageError
from seqwise.families import RECURRENT_FAMILIES, get_family
from seqwise.files import check_output_path
from seqwise.metrics.evaluation import DEFINITIONS, Evaluation, Perplexity, exp_or_inf
from seqwise.metrics.predictions import write_predictions
from seqwise.resolved_settings import ResolvedSettings
from seqwise.tasks.corpus_task import CorpusTask, find_training_blocks
from seqwise.tasks.inspection import InspectedInput
from seqwise.tasks.language.defaults import set_language_defaults
from seqwise.tasks.language.inspection import inspect_store, inspect_text
from seqwise.tasks.language.methods import MethodEvaluation, reject_methods_of_ngrams
from seqwise.tasks.language.model import LanguageModel as LanguageModel
from seqwise.tasks.language.model import Model as Model
from seqwise.tasks.language.model import build_model
from seqwise.tasks.language.model import generate_text as generate_text
from seqwise.tasks.language.ngram import NGramModel, check_counting_memory
from seqwise.tasks.language.scoring import (
    BATCH_SIZE,
    build_block_examples,
    choose_num_streams,
    create_block_sums,
    iterate_block_predictions,
    measure_block_overlap,
    score_text,
)
from seqwise.tasks.latency import Stopwatch
from seqwise.tasks.task import InferenceOptions, LatencyInputs, ModelBundle, Prediction, Preprocessor, ProcessGroup

MIN_ADAPTIVE_VOCABULARY = 20  # for the adaptive softmax, whose first cluster has a tenth of the vocabulary
PROMPT_TOKENS = 64  # tokens of the prompt when latency is measured


class Language(CorpusTask):
    """The language modelling task on one corpus."""

    set_defaults = staticmethod(set_language_defaults)
    primary_metric = ("perplexity", "ppl")
    outputs = ("full", "adaptive", "sampled", "mixture")

    def check_settings(self, settings: ResolvedSettings) -> None:
        if not get_family(settings.model).has_gradients:
            check_counting_memory(len(self.stores["train"]), len(self.tokenizer), settings.context.length)
            return
        network, window = settings.network, settings.data.window
        kind, size = self.tokenizer.kind, len(self.tokenizer)
        problem = fix = ""
        if settings.recurrent.bidirectional:
            problem = "a language model must not see what it predicts: it reads in one direction."
            fix = "Leave out --recurrent.bidirectional, or use --task masked."
        elif network.output == "adaptive" and kind in ("bpe", "wordpiece"):
            problem = f"the adaptive softmax needs ids sorted by frequency, which {kind} does not provide."
            fix = "Use --text.tokenizer words, or --network.output full, sampled or mixture."
        elif network.output == "adaptive" and size < MIN_ADAPTIVE_VOCABULARY:
            expected = f"a vocabulary of at least {MIN_ADAPTIVE_VOCABULARY} tokens"
            problem = f"the adaptive softmax needs {expected}; received {size}."
            fix = "Use --network.output full."
        elif settings.model not in (*RECURRENT_FAMILIES, "feedforward") and window == "full":
            subject = "a Transformer" if settings.model == "transformer" else f"{settings.model}, which has no state,"
            problem = f"{subject} needs a window of limited length."
            fix = "Set --data.window to a number."
        if problem:
            raise UsageError(problem, fix=fix)

    def check_shapes(self, model: LanguageModel) -> None:
        model.backbone(model.embedding(torch.zeros(1, 1, dtype=torch.int64, device="meta")))

    def build(self, settings: ResolvedSettings) -> Model:
        """Returns an untrained model; a neural one already predicts each token by its frequency."""
        counts = self.counts if get_family(settings.model).has_gradients else None
        return build_model(settings, len(self.tokenizer), counts)

    def fit(self, model: NGramModel) -> int:
        model.fit(self.stores["train"], self.tokenizer.end)
        return len(self.stores["train"])

    def batches(self, settings: ResolvedSettings, rank: int = 0, world_size: int = 1) -> StreamLoader | WindowLoader:
        """Returns contiguous streams or shuffled windows, depending on `data.order`."""
        loader_class: type[StreamLoader | WindowLoader] = WindowLoader
        if settings.data.order == "streams":
            loader_class = RotatedStreamLoader if settings.data.partial_shuffle else StreamLoader
        batch_size, window = settings.training.batch_size, settings.data.window
        return loader_class(self.stores["train"], batch_size, window, settings.seed, rank, world_size)

    def validate(
        self, model: Model, settings: ResolvedSettings, world: ProcessGroup, share: float = 1.0
    ) -> dict[str, float]:
        """Returns loss and perplexity on the validation split, computed by all processes.

        A `share` of the split are blocks at equal distances, or windows for a model without a state.
        """
        store = self.stores["valid"]
        # The same batches for any number of processes; if they cannot be divided, the first process scores all of them.
        stateful = isinstance(model, NGramModel) or model.stateful
        is_divisible = (choose_num_streams(store) if stateful else BATCH_SIZE) % world.size == 0
        own_sums = (0.0, 0)
        if is_divisible or world.rank == 0:
            rank, size = (world.rank, world.size) if is_divisible else (0, 1)
            own_sums = score_text(model, store, settings, rank, size, share=share)
        nats, num_tokens = world.sum(*own_sums)
        return {"loss": nats / num_tokens, "perplexity": exp_or_inf(nats / num_tokens)}

    # Inference with a trained model, without the training data

    @classmethod
    def restore(cls, settings: ResolvedSettings, preprocessor: Preprocessor) -> Model:
        return build_model(settings, len(preprocessor.tokenizer))

    @classmethod
    def evaluate(cls, bundle: ModelBundle, data: str, split: str | None, options: InferenceOptions) -> Evaluation:
        """Returns the perplexity: of the test split of the training data or of a folder, or of any other whole text.

        The results of other methods, such as a cache, have names of their own.
        """
        model, settings = bundle.model, bundle.settings
        check_output_path(options.out)
        reject_methods_of_ngrams(model, options)
        store, description = cls.open_store(bundle, data, split)
        training = bundle.training
        masks = None if training is None else find_training_blocks(training, store)
        has_overlap = masks is not None and bool(masks[1].any())
        block_sums = create_block_sums(store) if options.examples or has_overlap else None
        with Stopwatch() as watch:
            sums = score_text(model, store, settings, progress=options.progress, block_sums=block_sums)
        method_results = MethodEvaluation(cls, bundle, data, store, options).run()
        if options.out is not None:
            options.start_phase("writing predictions")
            tokenizer = bundle.preprocessor.tokenizer
            write_predictions(options.out, iterate_block_predictions(model, store, settings, tokenizer))
        info, warnings = store.info, []
        result = Perplexity(*sums, words=info.words, characters=info.characters, unknown=info.unknown)
        if result.unknown:
            count = f"{result.unknown / result.tokens:.1%} of the tokens ({result.unknown:,})"
            warnings.append(f"{count} are <unk>: their spelling was not predicted.")
        examples = None
        if block_sums is not None and options.examples:
            examples = build_block_examples(block_sums, store, bundle.preprocessor.tokenizer)
        counts = store.count_tokens(len(bundle.preprocessor.tokenizer))
        counts[store.read(0, 1)] -= 1  # nothing predicts the first token
        metrics, definitions = result.compute_metrics(), dict(DEFINITIONS)
        for each in method_results:
            metrics |= each.compute_metrics(store)
            definitions |= each.definitions
        return Evaluation(
            metrics,
            definitions,
            description,
            "\n".join([describe_context(model, settings, store), *(each.description for each in method_results)]),
            warnings=tuple(warnings),
            data_notes=tuple(note for each in method_results for note in each.notes),
            seconds=watch.seconds,
            examples=examples,
            primary_metric="perplexity",
            baselines=cls.compute_baselines(bundle, counts),
            overlap=None if masks is None else measure_block_overlap(*masks, block_sums),
        )

    @classmethod
    def latency_inputs(cls, bundle: ModelBundle, data: str, split: str) -> LatencyInputs:
        """Returns one input, and a function that continues the beginning of the split by one token at each call."""
        model, (store, _) = bundle.model, cls.open_store(bundle, data, split)
        prompt = torch.from_numpy(store.read(0, min(PROMPT_TOKENS, len(store)))[None].astype("int64"))
        if isinstance(model, LanguageModel):
            prompt = prompt.to(model.eval().embedding.weight.device)
        tokens = generate(model, prompt, SamplingOptions())
        return range(1), lambda _: next(tokens)

    @classmethod
    def inspect_text(cls, bundle: ModelBundle, text: str) -> InspectedInput:
        return inspect_text(bundle, text)

    @classmethod
    def inspect_split(
        cls, bundle: ModelBundle, data: str, split: str, count: int, progress: ProgressCallback = no_progress
    ) -> list[InspectedInput]:
        return inspect_store(bundle, *cls.open_store(bundle, data, split), count, progress)

    @classmethod
    def predict(cls, bundle: ModelBundle, inputs: Sequence[str], options: InferenceOptions) -> Iterator[Prediction]:
        """Yields the prompts with their continuations."""
        for prompt in inputs:
            text = "".join(cls.stream(bundle, prompt, options))
            yield Prediction(prompt + text, {"prompt": prompt, "continuation": text, "seed": options.seed})

    @classmethod
    def stream(cls, bundle: ModelBundle, prompt: str, options: InferenceOptions) -> Iterator[str]:
        """Yields the continuation piece by piece, as it is generated."""
        sampling, max_length = options.sampling or SamplingOptions(), options.max_length or MAX_NEW_TOKENS
        return generate_text(bundle.model, bundle.preprocessor.tokenizer, prompt, sampling, options.seed, max_length)


def describe_context(model: Model, settings: ResolvedSettings, store: TokenStore) -> str:
    """Returns a description of the context from which the model predicts each token."""
    if isinstance(model, NGramModel):
        return model.ngram.describe()
    window = settings.data.window
    if not model.stateful:
        context = f"each token seen with {window // 2 if isinstance(window, int) else 0} to {window} tokens of context"
    elif (num_streams := choose_num_streams(store)) == 1:
        context = "state passed on over the whole text"
    else:
        context = f"state passed on over each of {num_streams} equal parts of the text"
    return f"{context}; {model.head.output.describe()}"  # type: ignore[operator]
