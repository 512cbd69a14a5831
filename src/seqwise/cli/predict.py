"""`seqwise predict`: predictions of a trained run. A language model prints its continuation token by token.

The options of decoding are also those of `seqwise evaluate`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from seqwise.cli import console
from seqwise.cli.inputs import get_piped_input, read_lines, read_text
from seqwise.cli.models import explain_missing_columns, load_model
from seqwise.cli.options import UNSET, list_typed, parse
from seqwise.config import Device
from seqwise.decoding.options import BeamSearchOptions, SamplingOptions
from seqwise.errors import UsageError, pluralize
from seqwise.task_registry import PATH_TASKS

if TYPE_CHECKING:
    from seqwise.tasks.task import InferenceOptions, Prediction
    from seqwise.text.tokenizer import Tokenizer
    from seqwise.training.api import TrainedModel

MAX_PROMPT = 10_000  # characters
PIPE = "seqwise predict RUN -"  # predicts for a text from standard input
INPUT_WARNINGS = {  # key in a prediction's values → the end of a warning about one input, and about several
    "cut": (
        "was truncated: it is longer than --data.max-length",
        "were truncated: they are longer than --data.max-length",
    ),
    "unknown": ("contains unknown tokens", "contain unknown tokens"),
    "nothing_known": ("contains only unknown tokens", "contain only unknown tokens"),
}
EXAMPLES = """seqwise predict runs/book 'It was' --temperature 0.8 --top-p 0.9 --seed 1
seqwise predict runs/reviews 'A fine film.' 'Not again.' --json
cat sentences.txt | seqwise predict runs/dates --beam 5"""

_SEQUENCE_TASKS = ("translate", "caption")  # whose output is a generated sequence
# Option → the tasks that use it; for other tasks it is an error.
DECODING_OPTION_TASKS: dict[str, tuple[str, ...]] = {
    "max_length": ("language", *_SEQUENCE_TASKS),
    **dict.fromkeys(("beam", "length_penalty", "coverage_penalty", "min_length", "no_repeat_ngram"), _SEQUENCE_TASKS),
    "target": ("translate",),
}
OPTION_TASKS = DECODING_OPTION_TASKS | {
    **dict.fromkeys(("n_best", "start"), _SEQUENCE_TASKS),
    **dict.fromkeys(
        ("greedy", "sample", "temperature", "top_k", "top_p", "repetition_penalty", "seed"),
        ("language", *_SEQUENCE_TASKS),
    ),
    "top": ("classify", "masked"),
    "out": ("forecast",),
}


@dataclass(kw_only=True)
class DecodingOptions:
    """Options of `predict` and `evaluate`, so that a model is evaluated with the predictions that it makes."""

    new_names: ClassVar[dict[str, str]] = {"--no-repeat": "--no-repeat-ngram"}

    max_length: Annotated[int | None, UNSET] = None
    """Maximum number of tokens to generate."""
    beam: Annotated[int | None, UNSET] = None
    """translate, caption: beam size; 1 is greedy search."""
    length_penalty: float = BeamSearchOptions.length_penalty
    """translate, caption: values above 0 favour long outputs."""
    coverage_penalty: float = BeamSearchOptions.coverage_penalty
    """translate, caption: values above 0 favour outputs that attend to all of the input."""
    min_length: int = BeamSearchOptions.min_length
    """translate, caption: minimum number of tokens."""
    no_repeat_ngram: int = BeamSearchOptions.no_repeat_ngram
    """translate, caption: no n-gram of this length occurs twice; 0 is off."""
    target: Annotated[str | None, UNSET] = None
    """translate: target languages, if the run has several."""


@dataclass
class Predict(DecodingOptions):
    """Predict with a trained run, or with the best of a comparison. Each TEXT is one input; a file or -
    (standard input) has one input per line. Without TEXT, a pipe is read.

    language continues TEXT (a whole file), masked fills [MASK], classify predicts labels, tag tags words, translate
    translates, caption describes images, forecast continues the series of a CSV file.
    """

    main_options: ClassVar = (
        "max-length", "greedy", "temperature", "top-k", "top-p", "sample", "seed", "top", "beam", "start",
        "target", "out", "device", "json",
    )  # fmt: skip

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder, or the folder of a comparison."""
    text: Annotated[
        tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="[TEXT …]", help_behavior_hint="")
    ] = ()
    """Texts, a file, or - for standard input; image files for caption, a CSV file for forecast."""
    n_best: int = BeamSearchOptions.n_best
    """translate, caption: hypotheses per input, best first."""
    start: str = BeamSearchOptions.start
    """translate, caption: forced first words of the output."""
    top: int = 5
    """classify, masked: number of alternatives to print."""
    greedy: bool = SamplingOptions.greedy
    """Always choose the most likely token."""
    sample: bool = False
    """Sample tokens; language samples by default, unless --greedy."""
    temperature: float = SamplingOptions.temperature
    """Sampling temperature: below 1 sharpens the distribution, above 1 flattens it."""
    top_k: Annotated[int | None, UNSET] = SamplingOptions.top_k
    """Sample from the k most likely tokens only."""
    top_p: Annotated[float | None, UNSET] = SamplingOptions.top_p
    """Nucleus sampling: sample from the smallest set of tokens with this total probability."""
    repetition_penalty: float = SamplingOptions.repetition_penalty
    """Values above 1 make tokens that have already occurred less likely."""
    seed: int = 0
    """Random seed of sampling."""
    out: Annotated[Path | None, UNSET] = None
    """forecast: write a plot to this file (.svg or .png)."""
    device: Device = "auto"
    """Device that computes; auto: a GPU if there is one."""
    json: bool = False
    """Print the result as one JSON document on standard output."""


def main(argv: Sequence[str]) -> int:
    args = parse(Predict, argv, prog="seqwise predict", example=EXAMPLES)
    if args.greedy and args.sample:
        raise UsageError("--greedy and --sample exclude each other.")
    sampling = SamplingOptions(args.greedy, args.temperature, args.top_k, args.top_p, args.repetition_penalty)
    build_beam_search(args, BeamSearchOptions())  # reject invalid values before the model is loaded
    trained = load_model("predict", args.run, args.text, args.device)
    reject_options_of_other_tasks(list_typed(argv), str(trained.settings.task), OPTION_TASKS)
    if trained.settings.task == "language":
        return _continue_text(trained, args, _build_options(args, BeamSearchOptions(), sampling))
    if sampling != replace(SamplingOptions(), greedy=args.greedy) and not args.sample:
        raise UsageError("--temperature, --top-k, --top-p and --repetition-penalty need sampling.", fix="Add --sample.")
    beam_search = BeamSearchOptions() if args.greedy else trained.task.beam_search
    with explain_missing_columns(trained):
        return _predict(trained, args, _build_options(args, beam_search, sampling if args.sample else None))


def _build_options(args: Predict, beam_search: BeamSearchOptions, sampling: SamplingOptions | None) -> InferenceOptions:
    from seqwise.tasks.task import InferenceOptions

    return InferenceOptions(
        beam_search=build_beam_search(args, beam_search),
        sampling=sampling,
        seed=args.seed,
        max_length=args.max_length,
        target=args.target,
        top=args.top,
        out=args.out,
    )


def _continue_text(trained: TrainedModel, args: Predict, options: InferenceOptions) -> int:
    """Prints the continuations of a language model piece by piece."""
    documents: list[dict[str, Any]] = []
    for text in args.text or (get_piped_input() or "",):
        prompt = _truncate_prompt(read_text(text, PIPE))
        _warn_about_unknown_tokens(trained.run.preprocessor.tokenizer, prompt)
        pieces = trained.predict(prompt, options=options)
        if not args.json:
            pieces = _print_pieces(prompt, pieces)
        documents.append({"prompt": prompt, "continuation": "".join(pieces), "seed": args.seed})
    if args.json:
        console.print_json(documents[0] if len(documents) == 1 else documents)
    _warn_about_empty([document["continuation"] for document in documents])
    return 0


def _print_pieces(prompt: str, pieces: Iterable[str]) -> Iterator[str]:
    """Prints the prompt and each piece as it is generated; yields the pieces."""
    console.write_text(prompt)
    for piece in pieces:
        console.write_text(piece)
        yield piece
    console.write_text("\n")


def _predict(trained: TrainedModel, args: Predict, options: InferenceOptions) -> int:
    """Prints one prediction per input, as they arrive."""
    from seqwise.training.card import get_example_input

    inputs: list[str] = []
    takes_paths = trained.settings.task in PATH_TASKS
    for text in args.text or (get_piped_input() or "",):
        task_inputs = trained.task.read_inputs(text, trained.settings)
        inputs += read_lines(text, "" if takes_paths else PIPE) if task_inputs is None else task_inputs
    if not inputs or not any(each.strip() for each in inputs):
        example = shlex.join(["seqwise", "predict", str(args.run), get_example_input(trained.run)])
        raise UsageError("there is no input.", fix=f"For example: {example}")
    predictions: list[Prediction] = []
    for prediction in trained.predict_all(inputs, options):
        predictions.append(prediction)
        if not args.json:
            console.write_text(prediction.text + "\n")
    if args.json:
        console.print_json([prediction.values for prediction in predictions])
    for key, problems in INPUT_WARNINGS.items():
        if count := sum(bool(prediction.values.get(key)) for prediction in predictions):
            console.warn(f"{count:,} of {pluralize(len(predictions), 'inputs')} {problems[count > 1]}.")
    _warn_about_empty([prediction.text for text, prediction in zip(inputs, predictions) if text.strip()])
    if args.out is not None:
        console.log(f"saved to {args.out}")
    return 0


def _warn_about_empty(answers: Sequence[str]) -> None:
    """Warns about empty answers: without a warning, a blank line looks like a failure."""
    if empty := sum(not answer.strip() for answer in answers):
        verb = "are" if empty > 1 else "is"
        console.warn(f"{empty:,} of {pluralize(len(answers), 'answers')} {verb} empty: the model ends them at once.")


def _warn_about_unknown_tokens(tokenizer: Tokenizer, prompt: str) -> None:
    """Warns about tokens of the prompt that are not in the vocabulary."""
    encoding = tokenizer.encode(prompt)
    tokens = zip(encoding.ids, encoding.offsets)
    unknown = [prompt[start:stop] for token_id, (start, stop) in tokens if token_id == tokenizer.unknown]
    if unknown:
        some = ", ".join(map(repr, dict.fromkeys(unknown[:5])))
        console.warn(f"{len(unknown)} of {len(encoding)} tokens of the prompt are not in the vocabulary: {some}")


def _truncate_prompt(prompt: str) -> str:
    """Returns the last `MAX_PROMPT` characters: a model reads the prompt in one pass, which takes memory."""
    if len(prompt) <= MAX_PROMPT:
        return prompt
    console.warn(f"the prompt has {len(prompt):,} characters; only the last {MAX_PROMPT:,} are used.")
    return prompt[-MAX_PROMPT:]


def reject_options_of_other_tasks(typed: Sequence[str], task: str, tasks: Mapping[str, tuple[str, ...]]) -> None:
    """Raises an error for an option on the command line that is not used by the task of the run."""
    for name in typed:
        supported = tasks.get(name, (task,))
        if task not in supported:
            option = "--" + name.replace("_", "-")
            problem = f"{option} applies to {', '.join(supported)}; the task of this run is {task}."
            raise UsageError(problem, fix="Leave it out.")


def build_beam_search(args: DecodingOptions, default: BeamSearchOptions) -> BeamSearchOptions:
    """Returns the beam search options that were typed; the default beam size is the task's, or --n-best if larger."""
    if args.max_length is not None and args.max_length < 1:
        raise UsageError(f"--max-length must be at least 1; received {args.max_length}.")
    names = [field.name for field in fields(BeamSearchOptions) if hasattr(args, field.name)]
    values = {name: getattr(args, name) for name in names}
    if args.beam is None:
        values["beam"] = max(default.beam, values.get("n_best", 1))
    return BeamSearchOptions(**values)
