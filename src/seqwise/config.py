"""Typed settings: the default of every option, and the help text of every flag.

`None` means "not set". For most settings a rule then chooses a value for this data and this machine: `set_…_defaults`
in `tasks/*/` has the rules, the choices are logged, and the `ResolvedSettings` are saved as `config.yaml` in the run.
Unknown keys are errors.
"""

from __future__ import annotations

import codecs
import re
import reprlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypedDict, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from seqwise.errors import FileKindError, UsageError, suggest
from seqwise.families import BUILTIN_FAMILIES, check_family_name
from seqwise.foreign_names import find_our_setting
from seqwise.task_registry import check_task_name
from seqwise.yaml_files import build_file_error, parse_yaml, read_yaml_text

TaskName = Literal["language", "masked", "classify", "tag", "translate", "caption", "forecast"]
TokenizerKind = Literal["characters", "words", "spaces", "bpe", "wordpiece"]
Device = Literal["auto", "cpu", "cuda"]

FAMILIES: tuple[str, ...] = BUILTIN_FAMILIES
TASKS: tuple[str, ...] = get_args(TaskName)
TOKENIZERS: tuple[str, ...] = get_args(TokenizerKind)
DEVICES: tuple[str, ...] = get_args(Device)

# Default for the use of trained models, which is no setting of a run. Others: `decoding/options.py`,
# `metrics/options.py`.
MAX_NEW_TOKENS = 200  # generated after a prompt

HELD_OUT_FRACTION = 0.05  # default of valid_fraction and of test_fraction

# Far beyond what can be trained: such values are mistakes, and would otherwise take hours or all memory to fail.
MAX_COUNT = 10**9  # of every whole number but the seed
MAX_WIDTH = 10**6
MAX_DEPTH = 1000  # layers are built one by one


class Section(BaseModel):
    """A group of settings. Unknown keys are errors; old names are accepted until version 0.3, with a warning.

    Numbers are finite, and whole numbers at most `MAX_COUNT`.
    """

    model_config = ConfigDict(
        extra="forbid", validate_assignment=True, use_attribute_docstrings=True, allow_inf_nan=False
    )

    new_names: ClassVar[dict[str, str]] = {}  # old name → new name
    optional: ClassVar[tuple[str, ...]] = ()  # settings for which no rule chooses: None means "none"

    @model_validator(mode="before")
    @classmethod
    def _accept_old_names(cls, values: Any) -> Any:
        if isinstance(values, dict) and not cls.new_names.keys().isdisjoint(values):
            for old in cls.new_names.keys() & values:
                warnings.warn(f"the setting {old!r} is now called {cls.new_names[old]!r}.", FutureWarning, stacklevel=2)
            return {cls.new_names.get(name, name): value for name, value in values.items()}
        return values

    @field_validator("*")
    @classmethod
    def _check_count(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, int) and value > MAX_COUNT and info.field_name != "seed":
            raise ValueError(f"input should be at most {MAX_COUNT:,}")
        return value


class TextSettings(Section):
    """How text becomes tokens. The tokeniser is trained on the training split only."""

    new_names = {"extend": "extend_vocabulary"}

    tokenizer: TokenizerKind | None = None
    """Kind of tokens. spaces: the text is already tokenised, with whitespace between tokens; a line ends in <eos>."""
    vocabulary: int | None = Field(None, ge=2)
    """Maximum size of the vocabulary (characters and spaces: no limit unless set)."""
    min_count: int | None = Field(None, ge=1)
    """Characters or words rarer than this become <unk>; 1 unless set, masked on small texts 2, many captions 3."""
    lowercase: bool = False
    """Convert to lower case before tokenising."""
    extend_vocabulary: int = Field(0, ge=0)
    """classify, tag: number of the most frequent words of --vectors added to those of the training split."""


class DataSettings(Section):
    """How data is split and divided into batches."""

    new_names = {"longest": "max_length", "tokens": "max_tokens"}

    encoding: str | None = None
    """Encoding of text files and tables, such as cp1251; detected unless set."""
    valid_fraction: float = Field(HELD_OUT_FRACTION, gt=0, lt=0.5)
    """Share held out for validation when the data has no validation split."""
    test_fraction: float = Field(HELD_OUT_FRACTION, gt=0, lt=0.5)
    """Share held out for testing when the data has no test split."""
    window: Annotated[int, Field(ge=1)] | Literal["full"] | None = None
    """Tokens per training window (truncated backpropagation through time); full: no truncation."""
    order: Literal["streams", "windows"] | None = None
    """streams: windows in order, the state passed on (recurrent models). windows: shuffled (Transformers)."""
    partial_shuffle: bool = False
    """language, streams: each epoch, each stream begins at a random token of its own and wraps around."""
    max_length: int | None = Field(None, ge=1)
    """Maximum tokens of one example; longer ones are truncated and counted."""
    max_tokens: int | None = Field(None, ge=1)
    """Maximum tokens per update, padding included: a batch of long examples has fewer examples."""
    on_empty: Literal["stop", "drop"] = "stop"
    """An example in which a field is empty: stop with an error, or drop the example and count it."""
    max_text_mb: int = Field(10, ge=1)
    """Maximum size in MB of one text, line or row of a table; an image may be ten times as large. More is an error."""
    max_expansion: int = Field(200, ge=1)
    """Maximum ratio of the size of data to that of its compressed file; above 16 MB, more is an error."""

    @field_validator("encoding")
    @classmethod
    def _check_encoding(cls, encoding: str | None) -> str | None:
        try:
            if encoding:
                "".encode(encoding)  # raises for codecs that are not of text, too
            return encoding and codecs.lookup(encoding).name
        except LookupError:
            examples = "utf-8, utf-16, cp1252, latin-1, cp1251, shift_jis, gb18030"
            raise ValueError(f"there is no such text encoding. Examples: {examples}") from None


class NetworkSettings(Section):
    """Size and regularisation, common to all neural families."""

    new_names = {"frozen": "freeze_embedding", "tied": "tie_weights"}

    width: int | None = Field(None, ge=1, le=MAX_WIDTH)
    """Width of the hidden vectors."""
    depth: int | None = Field(None, ge=1, le=MAX_DEPTH)
    """Number of layers."""
    embedding: int | None = Field(None, ge=1, le=MAX_WIDTH)
    """Width of the token vectors; by default that of --vectors, else the width of the network."""
    freeze_embedding: bool = False
    """Keep vectors from --vectors fixed in training; tokens without one are still trained."""
    dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout between layers."""
    input_dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout of the token vectors; that of --network.dropout unless set."""
    output_dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout of the last layer's outputs; that of --network.dropout, for Transformers 0, unless set."""
    embedding_dropout: float | None = Field(None, ge=0, lt=1)
    """Share of the word types that are left out of a batch, wherever they occur in it (Gal and Ghahramani);
    models without a state, such as Transformers, keep the first token of each window."""
    tie_weights: bool = True
    """Share the embedding matrix with the output projection. Never shared with the adaptive output."""
    output: Literal["full", "adaptive", "sampled", "mixture"] = "full"
    """Softmax used in training: full, adaptive (Grave et al.), sampled, or a mixture of softmaxes (Yang et al.).
    Evaluation is always exact."""
    samples: int = Field(1024, ge=1, le=MAX_WIDTH)
    """Negative samples per batch with --network.output sampled."""
    softmaxes: int = Field(2, ge=1, le=MAX_DEPTH)
    """Components with --network.output mixture; training time of the output grows with their number."""


class RecurrentSettings(Section):
    """Options of recurrent cells."""

    new_names = {"joined": "concat_directions", "memory": "attention_span"}

    activation: Literal["tanh", "relu", "sigmoid", "identity"] = "tanh"
    """Nonlinearity of the vanilla RNN."""
    update: Literal["keeps", "replaces"] = "keeps"
    """GRU: an update gate near 1 keeps the old state (Cho et al., PyTorch) or replaces it (Chung et al.)."""
    reset: Literal["after", "before"] = "after"
    """GRU: reset gate after the matrix product (cuDNN) or before it (Cho et al.)."""
    layer_norm: bool = False
    """Layer normalisation inside the cell."""
    variational_dropout: bool = True
    """On: dropout of vectors has one mask for all steps of a window (Gal and Ghahramani). Off: another one at each
    step."""
    weight_dropout: float | None = Field(None, ge=0, lt=1)
    """Dropout on the recurrent weight matrix, one mask per window."""
    state_dropout: float = Field(0.0, ge=0, lt=1)
    """LSTM: dropout on the hidden state in the recurrent product, one mask per sequence and window."""
    forget_bias: float | None = None
    """LSTM: initial bias of the forget gate."""
    cap_input_gate: bool = False
    """LSTM: the input gate is at most 1 minus the forget gate, so that the cell stays bounded."""
    last_width: int | None = Field(None, ge=1, le=MAX_WIDTH)
    """Width of the last layer; that of the others unless set."""
    sum_layers: bool = False
    """The output is the sum of the outputs of all layers, not that of the last."""
    activation_regularization: float | None = Field(None, ge=0)
    """Weight of the mean square of the outputs in the training loss (AR: Merity et al.)."""
    temporal_regularization: float | None = Field(None, ge=0)
    """Weight of the mean square of the outputs' change from step to step in the training loss (TAR: Merity et al.)."""
    cell: Literal["rnn", "gru", "lstm"] = "lstm"
    """Cell of attentive-rnn."""
    attention_span: int = Field(256, ge=1)
    """Past states that attentive-rnn attends to."""
    bidirectional: bool | None = None
    """Read in both directions. Not for models that predict the next token."""
    concat_directions: bool | None = None
    """Bidirectional: each layer reads both directions of the layer below, or there are two separate stacks."""


class TransformerSettings(Section):
    """Options of the Transformer."""

    heads: int | None = Field(None, ge=1, le=MAX_WIDTH)
    """Attention heads; the width must be divisible by their number."""
    positions: Literal["sinusoidal", "learned", "rotary", "none"] = "rotary"
    """Encoding of token positions."""
    norm: Literal["pre", "post"] = "pre"
    """Layer norm before each sublayer, or after it as in Vaswani et al."""
    activation: Literal["relu", "gelu"] = "gelu"
    """Nonlinearity of the feed-forward sublayer."""
    hidden: int | None = Field(None, ge=1, le=4 * MAX_WIDTH)
    """Width of the feed-forward sublayer; two or four times the width of the network unless set."""
    attention_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout of the attention weights, for long trainings on a small text; slower on CPUs."""


class ContextSettings(Section):
    """Options of feedforward and ngram, the families with a fixed context."""

    length: int = Field(5, ge=1, le=16)
    """ngram: length of the longest n-gram. feedforward: tokens of context."""


class ClassifySettings(Section):
    """Options of the task classify."""

    pooling: Literal["last", "mean", "max", "attention"] | None = None
    """How the states of a sequence become one vector."""
    class_weights: Literal["none", "balanced"] = "none"
    """balanced: weights inverse to frequency, so that every class has the same total weight."""
    stratify: bool | None = None
    """Hold out the same share of every label; on unless set, off in runs that earlier versions created."""
    word_dropout: float | None = Field(None, ge=0, lt=1)
    """Share of the tokens that training replaces by <unk>."""
    label_smoothing: float | None = Field(None, ge=0, lt=1)
    """Probability spread over all labels in the targets of training."""
    r_drop: float = Field(0.0, ge=0)
    """Weight of the divergence between two predictions with different dropout (R-Drop, Wu et al.); doubles the time."""
    ngrams: int = Field(0, ge=0, le=5)
    """Maximum length of n-grams that are scored by a linear model beside the network (Wang and Manning); 0: none."""
    ngram_buckets: int | None = Field(None, ge=1, le=2**24)
    """Weights per label that n-grams of two or more tokens share by hashing."""


class TagSettings(Section):
    """Options of the task tag."""

    new_names = {"word_dropout": "word_dropout_alpha"}

    crf: bool | None = None
    """Score whole sequences of tags (linear-chain CRF, Viterbi); on for tags that mark spans."""
    characters: int | None = Field(None, ge=0, le=MAX_WIDTH)
    """Width of the features computed from a word's characters; 0 leaves them out."""
    features: int = Field(0, ge=0, le=MAX_WIDTH)
    """Width of a vector of a word's n-grams, shape and casing elsewhere in its document; 0 leaves it out."""
    word_dropout_alpha: float = Field(0.0, ge=0, le=1000)
    """Training replaces words that occur n times by <unk> with probability alpha / (alpha + n); 0: 0.5 if n is 1."""
    scheme: Literal["auto", "bio", "iob1", "bioes", "plain"] = "auto"
    """How tags mark spans: bio, iob1 or bioes; plain: they do not; auto: detected from the data."""


class TranslateSettings(Section):
    """Options of the task translate."""

    attention: Literal["none", "additive", "dot", "general"] = "additive"
    """Attention of recurrent decoders: Bahdanau's additive, Luong's dot or general, or none."""
    input_feeding: bool = False
    """dot, general: the attention output of a step is also input to the next (Luong et al.); slower to train."""
    vocabulary: Literal["shared", "separate"] | None = None
    """One vocabulary for all languages, or one for each; shared bpe for one alphabet, else separate, unless set."""
    targets: Literal["decoders", "token"] = "decoders"
    """Several target languages: a decoder for each, or one decoder whose first token names the language."""
    teacher_forcing: float = Field(1.0, ge=0, le=1)
    """Share of true previous tokens at the end of training; it decreases linearly from 1 (scheduled sampling)."""
    label_smoothing: float | None = Field(None, ge=0, lt=1)
    """Probability spread over all tokens in the targets of training."""
    r_drop: float = Field(0.0, ge=0)
    """Weight of the divergence between two predictions with different dropout (R-Drop, Wu et al.); doubles the time."""


class CaptionSettings(Section):
    """Options of the task caption."""

    new_names = {"size": "image_size"}

    encoder: Literal["convolutional", "patches", "features"] | None = None
    """How an image is encoded; features: precomputed arrays (.npy)."""
    image_size: int | None = Field(None, ge=8, le=512)
    """Pixels to which the longer side of images is scaled; that of the largest, at most 64, unless set."""
    on_broken: Literal["stop", "drop"] = "stop"
    """An image that is missing or unreadable: stop with an error, or drop it with its captions and count it."""
    frames: bool | None = None
    """Clips of several frames instead of single images; detected from the data unless set."""
    grid: int | None = Field(None, ge=1)
    """convolutional: maximum regions along a side of the image; its sides are halved until they have no more."""
    blocks: int | None = Field(None, ge=0, le=MAX_DEPTH)
    """convolutional: residual blocks after each halving of the sides."""
    patch: int | None = Field(None, ge=2)
    """patches: pixels along the side of a patch."""
    attention: Literal["additive", "dot", "general"] = "general"
    """Attention of recurrent decoders over the regions of an image."""
    label_smoothing: float | None = Field(None, ge=0, lt=1)
    """Probability spread over all tokens in the targets of training."""
    shift: int | None = Field(None, ge=0)
    """Training shifts each image by up to this many pixels, at random."""
    flip: bool = False
    """Training mirrors half of the images. Not for captions that say left or right."""


class ForecastSettings(Section):
    """Options of the task forecast."""

    new_names = {"past": "lookback", "known": "known_future"}
    optional = ("known_future", "series")

    lookback: int | None = Field(None, ge=1)
    """Past steps that the model reads."""
    season: int | None = Field(None, ge=1)
    """Length of a season in steps, for the seasonal-naive forecast; detected from timestamps or values unless set."""
    quantiles: str | None = None
    """Quantiles to predict besides the point forecast, such as 0.1,0.9; or none."""
    known_future: str | None = None
    """Columns that are known in advance, such as holidays."""
    series: str | None = None
    """Column with the name of the series that a row belongs to, if the file contains several."""
    time: str | None = None
    """Column of the timestamps; the first that looks like one unless set."""
    date_order: Literal["auto", "day-first", "month-first", "year-first"] = "auto"
    """How dates such as 01/02/2024 are read; auto: detected from all of them."""
    missing: Literal["interpolate", "previous", "stop"] = "interpolate"
    """Missing values: interpolate linearly, repeat the previous value, or stop with an error."""
    splits: str | None = None
    """Training, validation and test splits in steps (8640,2880,2880) or shares (0.7,0.1,0.2)."""
    calendar: bool = True
    """Add the time of day, day of week and time of year of the timestamps as features."""
    patch: int | None = Field(None, ge=1)
    """Steps per patch; a patch becomes one input vector."""
    linear: bool = True
    """Add a linear skip connection from the past to the forecast."""
    normalize: Literal["window", "last"] = "window"
    """Subtract the mean of the window and divide by its standard deviation, or subtract its last value."""
    decoder: Literal["linear", "segments"] = "linear"
    """From the last state to the forecast: one linear map, or one more recurrent step per segment (Lin et al.)."""
    loss: Literal["mse", "mae"] = "mse"
    """Loss of the point forecast: squared or absolute error. Validation always chooses by the squared error."""


class MaskedSettings(Section):
    """Options of the task masked."""

    rate: float = Field(0.15, gt=0, lt=1)
    """Share of tokens that are masked and predicted."""


class TrainingSettings(Section):
    """Optimisation."""

    new_names = {"batch": "batch_size", "clip_at": "clip_threshold"}
    optional = ("peak_beta1", "average_from", "average_last")

    optimizer: Literal["adamw", "adam", "sgd", "asgd"] = "adamw"
    """asgd: SGD whose weights are averaged once validation stops improving."""
    learning_rate: float | None = Field(None, gt=0)
    """Peak learning rate."""
    beta1: float = Field(0.9, ge=0, lt=1)
    """adam, adamw: decay of the mean of the gradients; 0 leaves the mean out, as RMSProp does."""
    peak_beta1: float | None = Field(None, ge=0, lt=1)
    """one-cycle, one-cycle-flat: beta1 at the peak learning rate; it moves there from beta1 and back again."""
    beta2: float = Field(0.99, ge=0, lt=1)
    """adam, adamw: decay of the mean of the squared gradients."""
    epsilon: float = Field(1e-8, gt=0)
    """adam, adamw: added to the denominator of the update."""
    weight_decay: float | None = Field(None, ge=0)
    """Decay of matrices (not of biases and norms). adamw shrinks them directly; the others add an L2 gradient."""
    schedule: Literal["cosine", "one-cycle", "one-cycle-flat", "inverse-sqrt", "plateau", "constant"] = "cosine"
    """Learning rate over the budget; plateau divides it by four when validation stops improving."""
    warmup: float = Field(0.05, ge=0, lt=1)
    """Share of the budget over which the learning rate rises; the one-cycle schedules have their own warm-up."""
    clip: Literal["norm", "value", "none"] = "norm"
    """Clip gradients by their norm, by value, or not."""
    clip_threshold: float = Field(1.0, gt=0)
    """Maximum gradient norm, or maximum absolute value of a gradient."""
    ema: float | None = Field(None, ge=0, lt=1)
    """Decay of the exponential moving average of the weights, which is evaluated and saved; 0: off. Not with asgd."""
    average_from: float | None = Field(None, ge=0, lt=1)
    """Share of the budget from which on the mean of the weights after each update is evaluated and saved."""
    average_last: int | None = Field(None, ge=2)
    """At the end, also validate the mean of the weights of this many last validations; it is saved if it is better."""
    batch_size: int | None = Field(None, ge=1)
    """Sequences per update, over all processes."""
    accumulate: int = Field(1, ge=1)
    """Micro-batches per update: less memory, same update."""
    max_epochs: int | None = Field(None, ge=0)
    """Stop after this many epochs even if the budget is not spent; the schedule ends with them too. 0: no limit."""
    patience: int | None = Field(None, ge=1)
    """Stop after this many validations without improvement."""
    validate_every: int | None = Field(None, ge=1)
    """Updates between validations."""
    save_every: int | None = Field(None, ge=1)
    """Updates between checkpoints; otherwise at validations (large models: once a minute), at least every 2 minutes."""
    precision: Literal["float32", "bfloat16"] | None = None
    """Type of matrix products; by default bfloat16 on GPUs that support it, else float32."""
    compile: bool = False
    """Compile the layers of Transformers, on GPUs: some seconds at the start, faster steps."""
    watch: bool = False
    """Record gradients, updates and gates of each layer over training, for seqwise inspect RUN --view training."""


class Settings(Section):
    """Everything that determines a run."""

    optional = ("init", "vectors")

    task: str | None = None
    """language, masked, classify, tag, translate, caption, forecast or a task of your own; detected unless set."""
    model: str = "lstm"
    """feedforward, rnn, gru, lstm, attentive-rnn, transformer, ngram or a family of your own."""
    budget: str | None = None
    """How long to train: 90s, 5m, 1h, 2M-tokens, 3-epochs; 10m unless set."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Random seed of initial weights, batch order and dropout."""
    device: Device = "auto"
    """Where to train."""
    columns: str | None = None
    """Columns to read, by name or number, in the order of the task, such as text,label."""
    target: str | None = None
    """translate: target languages, de or de,fr. forecast: columns to predict."""
    horizon: int | None = Field(None, ge=1)
    """forecast: steps to predict."""
    init: str | None = None
    """Run folder whose encoder and vocabulary to start from."""
    vectors: str | None = None
    """File of word vectors that the token vectors start from."""
    text: TextSettings = TextSettings()
    data: DataSettings = DataSettings()
    network: NetworkSettings = NetworkSettings()
    recurrent: RecurrentSettings = RecurrentSettings()
    transformer: TransformerSettings = TransformerSettings()
    context: ContextSettings = ContextSettings()
    classify: ClassifySettings = ClassifySettings()
    tag: TagSettings = TagSettings()
    translate: TranslateSettings = TranslateSettings()
    caption: CaptionSettings = CaptionSettings()
    forecast: ForecastSettings = ForecastSettings()
    masked: MaskedSettings = MaskedSettings()
    training: TrainingSettings = TrainingSettings()

    @field_validator("task")
    @classmethod
    def _check_task(cls, task: str | None) -> str | None:
        return check_task_name(task)

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        return check_family_name(model)

    @field_validator("budget", mode="before")
    @classmethod
    def _check_budget(cls, budget: Any) -> Any:
        if isinstance(budget, int | float):
            raise ValueError("expected a text with a unit, such as '5m' for five minutes, '2M-tokens' or '3-epochs'")
        return budget

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


class SettingKeywords(TypedDict, total=False):
    """Keywords of `seqwise.train` and `seqwise.compare` that are settings of all families, for editors and mypy.

    A section is a dictionary: `network={"width": 128}`. The section `data` is passed in `settings`, since the first
    argument of these functions has that name.
    """

    seed: int
    device: Device
    columns: str | Sequence[str] | None
    target: str | Sequence[str] | None
    horizon: int | None
    init: str | Path | None
    vectors: str | Path | None
    text: Mapping[str, Any]
    network: Mapping[str, Any]
    recurrent: Mapping[str, Any]
    transformer: Mapping[str, Any]
    context: Mapping[str, Any]
    classify: Mapping[str, Any]
    tag: Mapping[str, Any]
    translate: Mapping[str, Any]
    caption: Mapping[str, Any]
    forecast: Mapping[str, Any]
    masked: Mapping[str, Any]
    training: Mapping[str, Any]


def combine_settings(settings: Settings | Mapping[str, Any] | None, overrides: Mapping[str, Any]) -> Settings:
    """Returns the settings updated with `overrides`, section by section: setting the width keeps the depth.

    Keys may be dotted ("network.width"); columns may be lists, and paths may be `Path`s.
    """
    if settings is not None and not isinstance(settings, Settings | Mapping):
        problem = f"settings: expected a dictionary or Settings; received {type(settings).__name__} {settings!r}."
        raise UsageError(problem, fix='For example: settings={"network": {"width": 128}}')
    base = _dump_chosen(settings) if isinstance(settings, Settings) else _nest(settings or {})
    return parse_settings(merge_settings(base, _nest(overrides)))


def _dump_chosen(settings: Settings) -> dict[str, Any]:
    """Returns what was set, at the beginning or later by an assignment; for the settings of a run, all values."""
    if type(settings) is not Settings:
        return settings.model_dump()
    return merge_settings(settings.model_dump(exclude_defaults=True), settings.model_dump(exclude_unset=True))


def merge_settings(base: dict[str, Any], overrides: dict[str, Any]) -> dict[str, Any]:
    """Returns `base` updated with `overrides`, section by section."""
    sections = {
        key for key in base.keys() & overrides if isinstance(base[key], dict) and isinstance(overrides[key], dict)
    }
    return base | overrides | {key: merge_settings(base[key], overrides[key]) for key in sections}


def _nest(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns plain values in sections: {"network.width": 8} is {"network": {"width": 8}}."""
    nested: dict[str, Any] = {}
    for key, value in values.items():
        section, _, name = str(key).partition(".")
        if isinstance(value, Mapping):
            value = dict(value)
        elif section in ("columns", "target") and isinstance(value, list | tuple):
            value = ",".join(map(str, value))
        elif isinstance(value, Path):
            value = str(value)
        nested = merge_settings(nested, {section: {name: value} if name else value})
    return nested


RENAMED_SETTINGS = {
    f"{section}.{old}": f"{section}.{new}"
    for section, field in Settings.model_fields.items()
    for old, new in getattr(field.annotation, "new_names", {}).items()
}  # old dotted name → new one


def load_settings(path: str | Path) -> Settings:
    """Returns settings from a YAML file; all errors in it are reported at once."""
    try:
        text = read_yaml_text(path)
        values = parse_yaml(text) or {}
    except FileNotFoundError:
        raise UsageError("the settings file does not exist.", file=path) from None
    except OSError as error:
        raise UsageError(f"the settings file cannot be read: {error.strerror}.", file=path) from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = None if mark is None else mark.line + 1
        raise UsageError(f"not valid YAML: {getattr(error, 'problem', error)}.", file=path, line=line) from None
    if not isinstance(values, dict):
        raise UsageError(f"expected a mapping of settings, found {type(values).__name__}.", file=path)
    if isinstance(values.get("settings"), dict):  # no setting has this name
        problem = "this is a recipe, not a settings file: its settings are under the key 'settings'."
        raise FileKindError(problem, file=path, fix="Copy what is under that key to a file of its own.")
    values.pop("run", None)  # in the saved settings of a run: its data, command and version
    return parse_settings(values, path, text=text)


SettingsT = TypeVar("SettingsT", bound=Settings)


def parse_settings(
    values: dict[str, Any],
    file: str | Path | None = None,
    settings_class: type[SettingsT] = Settings,  # type: ignore[assignment]
    text: str = "",
) -> SettingsT:
    """Returns settings from plain values; raises `UsageError` with all wrong ones, and suggestions for unknown names.

    `file` is the YAML file with the values, and `text` what it contains; None if they were passed from Python.
    """
    try:
        return settings_class.model_validate(values)
    except ValidationError as error:
        if file is None:
            raise UsageError(describe_errors(error, settings_class)) from None
        raise build_file_error(list_errors(error, settings_class, is_yaml=True), text, file) from None


# Parts of pydantic's messages to leave out: the value, which follows the message, and names of Python types.
_OMITTED_PARTS = re.compile(r"^Value error, |, (?:unable|got) .*| or instance of \w+")


def describe_errors(error: ValidationError, model: type[BaseModel], format_name: Callable[[str], str] = str) -> str:
    """Returns one line per wrong setting; `format_name` converts its dotted name to the form that the user typed."""
    return "\n".join(sentence for _, sentence in list_errors(error, model, format_name))


def list_errors(
    error: ValidationError, model: type[BaseModel], format_name: Callable[[str], str] = str, is_yaml: bool = False
) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yields the keys that lead to each wrong setting, and a sentence about it.

    The answer to a name of another tool is YAML or, by default, an argument of a Python function.
    """
    # A setting with a union of types has one error for each of them.
    for (path, section), group in groupby(error.errors(), key=lambda each: _find_setting(each["loc"], model)):
        errors = list(group)
        problem = " or ".join(_OMITTED_PARTS.sub("", each["msg"]) for each in errors).replace(
            "or Input should be", "or"
        )
        problem = f": {problem[:1].lower()}{problem[1:].rstrip('.')}; received {reprlib.repr(errors[0]['input'])}."
        if errors[0]["type"] == "extra_forbidden":
            answer = _translate_foreign_name(path[-1], errors[0]["input"], model, is_yaml)
            problem = answer or f": no such setting. {suggest(path[-1], section.model_fields)}"
        yield path, format_name(".".join(path)) + problem


def _translate_foreign_name(name: str, value: Any, model: type[BaseModel], is_yaml: bool) -> str:
    """Returns the end of a sentence with our setting for one of another tool; empty if `name` is none."""
    ours = find_our_setting(name, value, [*_list_names(model), *([] if is_yaml else ["out"])])
    if ours is None:
        return ""
    section, _, key = ours[0].rpartition(".")
    if is_yaml:
        text = f"{section}: {{{key}: {ours[1]}}}" if section else f"{key}: {ours[1]}"
    elif section == "data":  # also the name of the first argument of `seqwise.train`
        text = f'settings={{"{ours[0]}": {ours[1]!r}}}'
    else:
        text = f'{section}={{"{key}": {ours[1]!r}}}' if section else f"{key}={ours[1]!r}"
    return f" is {ours[0]} here: {text}"


def _list_names(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Yields the dotted name of every setting."""
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _list_names(field.annotation, f"{name}.")
        else:
            yield prefix + name


def _find_setting(location: Sequence[int | str], model: Any) -> tuple[tuple[str, ...], Any]:
    """Returns the path to a setting, without the types of a union that pydantic appends, and the section it is in."""
    for depth, part in enumerate(location[:-1], start=1):
        section = model.model_fields[part].annotation
        if not (isinstance(section, type) and issubclass(section, BaseModel)):
            return tuple(map(str, location[:depth])), model
        model = section
    return tuple(map(str, location)), model
