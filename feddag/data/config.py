# SPDX-License-Identifier: Apache-2.0
"""The settings of data and partition: two lines of TOML are enough, because all others have defaults."""

import os
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from annotated_types import Gt, Le
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from feddag.core.plugins import offers

KINDS = ("auto", "iid", "label-groups", "label-pairs", "lda", "quantity", "natural")
ConceptMap = Literal["identity", "reverse", "shift"]

MAX_ROUND = 1_000_000
WHO = "a share of the clients, drawn at random, or a list of their ids"
Some = Annotated[float, Gt(0), Le(1)] | tuple[str, ...]

# The kinds that use a setting. To set it with another kind is an error; it is never ignored in silence.
KINDS_OF: dict[str, tuple[str, ...]] = {
    "alpha": ("label-groups", "label-pairs", "lda", "quantity"),
    "form": ("lda",),
    "groups": ("label-groups", "label-pairs"),
    "label_share": ("label-groups",),
    "min_samples": ("lda", "quantity", "natural"),
}


class _Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SyntheticConfig(_Settings):
    """`[data.synthetic]`: how the synthetic Gaussian-mixture data is drawn."""

    groups: int = Field(default=4, ge=1, description="number of mixtures; each is one planted group")
    classes: int = Field(default=4, ge=2, description="number of classes, the same in every mixture")
    dimensions: int = Field(default=16, ge=1, description="number of features of a sample")
    train: int = Field(default=4000, ge=1, description="training samples over all mixtures")
    test: int = Field(default=1000, ge=1, description="test samples over all mixtures")
    spread: float = Field(default=3.0, gt=0, description="distance of the class centres, in noise deviations")
    seed: int = Field(default=0, ge=0, description="number the mixtures are drawn from")


class DataConfig(_Settings):
    """`[data]`: which samples, and where they are."""

    name: str = Field(
        default="fashion-mnist-sample", description="dataset; `feddag data list` prints all names"
    )
    folder: Path | None = Field(
        default=None, description="folder with datasets; default: FEDDAG_DATA, else a folder of the user"
    )
    cache: Path | None = Field(
        default=None, description="folder for converted arrays; default: FEDDAG_CACHE, else the user's cache"
    )
    download: bool = Field(
        default=False, description="download the dataset if it is not there (the size is printed)"
    )
    max_download: int = Field(
        default=3_500_000_000, ge=1, description="largest download in bytes that is accepted"
    )
    max_train: int | None = Field(
        default=None, ge=1, description="largest number of training samples to use, evenly over the classes"
    )
    max_test: int | None = Field(
        default=None, ge=1, description="largest number of test samples to use, evenly over the classes"
    )
    severity: int = Field(default=3, ge=1, le=5, description="severity of cifar10-c and tiny-imagenet-c")
    path: Path | None = Field(default=None, description="name = 'own': folder or table with the samples")
    label: str = Field(default="label", description="name = 'own': the column with the class")
    client: str = Field(
        default="client", description="name = 'own': the column with the client, if there is one table"
    )
    features: tuple[str, ...] = Field(
        default=(), description="name = 'own': the columns to use; default: all except label and client"
    )
    missing: Literal["refuse", "drop", "impute"] = Field(
        default="refuse",
        description="name = 'own': missing values are an error, their rows are dropped, "
        "or they are filled with the mean of the training samples",
    )
    test_share: float = Field(
        default=0.2, gt=0, lt=1, description="share held out for testing if the data has no test part"
    )
    synthetic: SyntheticConfig = Field(
        default=SyntheticConfig(), description="name = 'synthetic': how it is drawn"
    )

    @property
    def data_folder(self) -> Path:
        """Where datasets are looked for: the setting, else FEDDAG_DATA, else a folder of the user."""
        return self.folder or _from_environment("FEDDAG_DATA", "XDG_DATA_HOME", ".local/share")

    @property
    def cache_folder(self) -> Path:
        """Where converted arrays are kept: the setting, else FEDDAG_CACHE, else the user's cache folder."""
        return self.cache or _from_environment("FEDDAG_CACHE", "XDG_CACHE_HOME", ".cache")


def _from_environment(variable: str, base: str, default: str) -> Path:
    if os.environ.get(variable):
        return Path(os.environ[variable]).expanduser()
    return Path(os.environ.get(base) or Path.home() / default) / "feddag"


class ConceptConfig(_Settings):
    """`[partition.concept]`: groups of clients for which the same label means different things."""

    maps: tuple[ConceptMap, ...] = Field(
        default=("identity", "reverse", "shift"),
        min_length=1,
        description="one label map per group of clients: y, C-1-y, (y+1) mod C",
    )


class FeatureConfig(_Settings):
    """`[partition.feature]`: clients whose inputs look different."""

    kind: Literal["auto", "corruption", "domain"] = Field(
        default="auto", description="auto: a domain where the data has domains, else a corruption"
    )
    types: tuple[str, ...] = Field(
        default=(), description="corruptions (or domains) to use; default: all, for corruptions with 'clean'"
    )
    severity: int = Field(default=3, ge=1, le=5, description="severity of the corruptions")
    assign: Literal["even", "random"] = Field(
        default="even", description="even: equally many clients per type; random: each client draws its type"
    )


class QuantityConfig(_Settings):
    """`[partition.quantity]`: clients keep unequal parts of what the base kind gave them."""

    alpha: float = Field(default=1.0, gt=0, description="Dirichlet concentration; smaller is more unequal")
    min_samples: int = Field(default=1, ge=1, description="smallest number of samples that a client keeps")


class PartitionConfig(_Settings):
    """`[partition]`: which client holds which samples."""

    kind: str = Field(
        default="auto",
        description="auto: natural clients where the data has them, else one domain per client, iid; "
        f"one of {', '.join(KINDS)}, or your own as module:function",
    )
    alpha: float = Field(
        default=0.25, gt=0, description="Dirichlet concentration (the paper's α'); smaller is more unequal"
    )
    form: Literal["classwise", "hsu"] = Field(
        default="classwise", description="lda: each class over the clients, or a class mix per client"
    )
    groups: int | None = Field(
        default=None, ge=1, description="planted groups; default 5 for label-groups, 11 for label-pairs"
    )
    label_share: float = Field(
        default=0.2, gt=0, le=1, description="label-groups: share of the labels a group holds (the paper's ρ)"
    )
    min_samples: int | None = Field(
        default=None,
        ge=1,
        description="smallest number of samples of a client; default 10 if there are enough",
    )
    test: Literal["label_view", "proportional"] = Field(
        default="label_view", description="all test samples of the client's classes, or its class proportions"
    )
    test_samples: int | None = Field(
        default=None, ge=1, description="largest number of test samples per client, drawn once"
    )
    validation: float = Field(
        default=0.1, ge=0, lt=1, description="share of each client's training samples held out for validation"
    )
    newcomers: float = Field(default=0.0, ge=0, lt=1, description="share of the clients that join later")
    concept: ConceptConfig | None = Field(default=None, description="concept shift on top (Distribution II)")
    feature: FeatureConfig | None = Field(default=None, description="feature skew on top (Distribution IV)")
    quantity: QuantityConfig | None = Field(default=None, description="quantity skew on top")

    @field_validator("kind", mode="before")
    @classmethod
    def _kind_is_known(cls, kind: Any) -> Any:
        if isinstance(kind, str) and (kind in KINDS or ":" in kind or kind in offers("feddag.partitions")):
            return kind
        known = ", ".join(f"'{name}'" for name in KINDS)
        raise ValueError(f"expected {known}, or your own as 'module:function'")

    @model_validator(mode="after")
    def _no_setting_is_ignored(self) -> Self:
        for name in sorted(self.model_fields_set & KINDS_OF.keys()):
            if (
                self.kind not in KINDS_OF[name]
                and getattr(self, name) != type(self).model_fields[name].default
            ):
                kinds = ", ".join(f"'{kind}'" for kind in KINDS_OF[name])
                raise ValueError(f"'{name}' has no meaning for kind '{self.kind}': it belongs to {kinds}")
        return self


class DriftConfig(_Settings):
    """`[[scenario.drift]]`: clients whose data change."""

    at: int = Field(ge=1, le=MAX_ROUND, description="the first round with other data")
    clients: Some = Field(description=WHO)
    kind: Literal["label", "concept", "feature", "quantity"] = Field(
        description="what changes: which labels, what labels mean, how samples look, or how many there are"
    )
    to: str | int = Field(
        default="other",
        description="label: a planted group; concept: a label map (identity, reverse, shift, swap-1-2); "
        "feature: a corruption or domain; 'other' draws one",
    )
    factor: float | None = Field(
        default=None, gt=0, description="quantity: how many times as many samples as before"
    )
    over: int = Field(default=1, ge=1, le=MAX_ROUND, description="rounds it takes; 1: sudden")
    keep: float = Field(
        default=0.0, ge=0, le=1, description="share of the old samples that are kept; 1: no new samples"
    )
    until: int | None = Field(
        default=None, ge=2, le=MAX_ROUND, description="the round in which the data are as before again"
    )

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if (self.kind == "quantity") != (self.factor is not None):
            raise ValueError("'factor' belongs to kind 'quantity', and only to it")
        if self.kind == "quantity" and (self.to != "other" or self.keep):
            raise ValueError("kind 'quantity' has no 'to' and no 'keep'")
        if self.kind == "label" and self.keep == 1:
            raise ValueError("keep = 1: a label drift needs new samples, so expected less than 1")
        if self.over > 1 and 0 < self.keep < 1:
            raise ValueError("keep: expected 0 or 1 where a drift takes several rounds (over > 1)")
        if self.until is not None and self.until < self.at + self.over:
            raise ValueError(f"until = {self.until}: expected a round after {self.at + self.over - 1}")
        return self
