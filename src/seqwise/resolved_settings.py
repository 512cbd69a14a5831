"""`ResolvedSettings`: the settings of a run, in which every field has a value.

`Settings` holds what the user asked for; `None` there means "choose for me". `tasks.defaults.resolve` chooses these
values, and everything that builds, trains or evaluates a model takes a `ResolvedSettings`. A field that does not apply
to a run (the heads of an LSTM) has the placeholder value below, such as 0 or "", so that no caller has to handle None.
Such a field is saved as null, so that a saved `ResolvedSettings` can be loaded as `Settings` too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from seqwise import config


class ResolvedSection(config.Section):
    """A section of settings; missing and null values get the placeholders of its fields."""

    @model_validator(mode="before")
    @classmethod
    def _drop_null_values(cls, values: Any) -> Any:
        return {k: v for k, v in values.items() if v is not None} if isinstance(values, dict) else values

    @model_serializer(mode="wrap")
    def _save_placeholders_as_null(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Returns the values by name; None for a field that was never set and that `Settings` may leave as None."""
        fields = type(self).__mro__[2].model_fields  # type: ignore[attr-defined]  # of the same section of `Settings`
        return {
            name: None if name not in self.model_fields_set and fields[name].default is None else value
            for name, value in serialize(self).items()
        }


class ResolvedTextSettings(ResolvedSection, config.TextSettings):
    tokenizer: config.TokenizerKind = "words"
    vocabulary: int = 0
    min_count: int = 1


class ResolvedDataSettings(ResolvedSection, config.DataSettings):
    encoding: str = ""  # "": detected
    window: Annotated[int, Field(ge=1)] | Literal["full"] = 1
    order: Literal["streams", "windows"] = "windows"
    max_length: int = 512
    max_tokens: int = 0  # 0: no limit


class ResolvedNetworkSettings(ResolvedSection, config.NetworkSettings):
    width: int = Field(1, ge=1, le=config.MAX_WIDTH)
    depth: int = Field(1, ge=1, le=config.MAX_DEPTH)
    embedding: int = Field(0, ge=0, le=config.MAX_WIDTH)  # replaced by the width
    dropout: float = 0.0
    embedding_dropout: float = 0.0
    input_dropout: float = 0.0  # replaced by `dropout`
    output_dropout: float = 0.0  # replaced by `dropout`, for models with a state

    @model_validator(mode="after")
    def _derive_values(self) -> Self:
        # An assignment would be validated, and so recurse.
        if "embedding" not in self.model_fields_set:
            self.__dict__["embedding"] = self.width
        if "input_dropout" not in self.model_fields_set:
            self.__dict__["input_dropout"] = self.dropout
        return self

    def get_output_dropout(self, stateful: bool) -> float:
        """Returns the dropout of the outputs of a backbone with or without a state."""
        if "output_dropout" in self.model_fields_set:
            return self.output_dropout
        return self.dropout if stateful else 0.0


class ResolvedRecurrentSettings(ResolvedSection, config.RecurrentSettings):
    weight_dropout: float = 0.0
    forget_bias: float = 1.0
    activation_regularization: float = 0.0
    temporal_regularization: float = 0.0
    last_width: int = Field(0, ge=0, le=config.MAX_WIDTH)  # 0: the width of the other layers
    bidirectional: bool = False
    concat_directions: bool = True


class ResolvedTransformerSettings(ResolvedSection, config.TransformerSettings):
    heads: int = Field(1, ge=1, le=config.MAX_WIDTH)
    hidden: int = Field(0, ge=0, le=4 * config.MAX_WIDTH)  # replaced by four times the width of the network


class ResolvedClassifySettings(ResolvedSection, config.ClassifySettings):
    pooling: Literal["last", "mean", "max", "attention"] = "mean"
    stratify: bool = False
    word_dropout: float = 0.0
    label_smoothing: float = 0.0
    ngram_buckets: int = Field(0, ge=0, le=2**24)  # `NGramHead` refuses 0 where it needs buckets


class ResolvedTagSettings(ResolvedSection, config.TagSettings):
    crf: bool = False
    characters: int = Field(0, ge=0, le=config.MAX_WIDTH)


class ResolvedTranslateSettings(ResolvedSection, config.TranslateSettings):
    vocabulary: Literal["shared", "separate"] = "shared"
    label_smoothing: float = 0.0


class ResolvedCaptionSettings(ResolvedSection, config.CaptionSettings):
    encoder: Literal["convolutional", "patches", "features"] = "convolutional"
    image_size: int = 0
    frames: bool = False
    grid: int = 1
    blocks: int = Field(0, ge=0, le=config.MAX_DEPTH)
    patch: int = 2
    label_smoothing: float = 0.0
    shift: int = 0


class ResolvedForecastSettings(ResolvedSection, config.ForecastSettings):
    lookback: int = 1
    season: int = 1
    quantiles: str = ""
    known_future: str = ""
    series: str = ""
    time: str = ""
    splits: str = ""
    patch: int = 1


class ResolvedTrainingSettings(ResolvedSection, config.TrainingSettings):
    learning_rate: float = 1e-3
    peak_beta1: float = Field(-1.0, lt=1)  # replaced by beta1
    weight_decay: float = 0.0
    ema: float = 0.0
    average_from: float = 1.0  # 1: never
    average_last: int = 0  # 0: off
    batch_size: int = 1
    max_epochs: int = 0  # 0: no limit
    patience: int = 0  # 0: never stop early
    validate_every: int = 0  # 0: at equal shares of the budget
    save_every: int = 0  # 0: at validations
    precision: Literal["float32", "bfloat16"] = "float32"

    @property
    def is_adam(self) -> bool:
        """Returns whether the optimiser scales updates by their past squares, so that its learning rates are small."""
        return self.optimizer in ("adam", "adamw")

    @model_validator(mode="after")
    def _derive_peak_beta1(self) -> Self:
        if "peak_beta1" not in self.model_fields_set:
            self.__dict__["peak_beta1"] = self.beta1
        return self


class ResolvedSettings(ResolvedSection, config.Settings):
    """All settings of a run."""

    task: str = "language"
    budget: str = ""
    columns: str = ""
    target: str = ""
    horizon: int = 1
    init: str = ""
    vectors: str = ""
    text: ResolvedTextSettings = ResolvedTextSettings()
    data: ResolvedDataSettings = ResolvedDataSettings()
    network: ResolvedNetworkSettings = ResolvedNetworkSettings()
    recurrent: ResolvedRecurrentSettings = ResolvedRecurrentSettings()
    transformer: ResolvedTransformerSettings = ResolvedTransformerSettings()
    classify: ResolvedClassifySettings = ResolvedClassifySettings()
    tag: ResolvedTagSettings = ResolvedTagSettings()
    translate: ResolvedTranslateSettings = ResolvedTranslateSettings()
    caption: ResolvedCaptionSettings = ResolvedCaptionSettings()
    forecast: ResolvedForecastSettings = ResolvedForecastSettings()
    training: ResolvedTrainingSettings = ResolvedTrainingSettings()

    @model_validator(mode="after")
    def _derive_hidden(self) -> Self:
        if "hidden" not in self.transformer.model_fields_set:
            self.transformer.__dict__["hidden"] = 4 * self.network.width
        return self

    @classmethod
    def from_settings(cls, settings: config.Settings) -> Self:
        """Returns the settings with placeholders for those that are not set."""
        return cls.model_validate(settings.model_dump())


def drop_placeholders(values: Mapping[str, Any], section: type[ResolvedSection] = ResolvedSettings) -> dict[str, Any]:
    """Returns saved values without placeholders that were set, such as a `validate_every` of 0.

    They are not valid in `Settings`, which has the limits of all other values.
    """
    remaining: dict[str, Any] = {}
    for name, value in values.items():
        placeholder = section.model_fields[name].default if name in section.model_fields else None
        if isinstance(placeholder, ResolvedSection) and isinstance(value, Mapping):
            remaining[name] = drop_placeholders(value, type(placeholder))
        elif value != placeholder:
            remaining[name] = value
    return remaining
