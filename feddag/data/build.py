# SPDX-License-Identifier: Apache-2.0
"""From settings to a federation: load the samples, deal them to clients, add skews, remember the groups."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from feddag.core.errors import InvalidInput
from feddag.core.seeds import Seed
from feddag.data.catalog import load_dataset
from feddag.data.config import DataConfig, FeatureConfig, PartitionConfig
from feddag.data.dataset import Dataset
from feddag.data.dealing.features import corrupt_shares
from feddag.data.dealing.lives import shares_of_lives, timeline
from feddag.data.dealing.partitions import PARTITIONS
from feddag.data.dealing.planting import PlantedGroups
from feddag.data.dealing.rows import make_shares, test_rows, training_rows
from feddag.data.dealing.skews import (
    Styles,
    choose_concepts,
    choose_newcomers,
    choose_styles,
    keep_unequal_parts,
)
from feddag.data.federation import Federation, Pool, Share
from feddag.data.names import is_allowed
from feddag.data.scenario import Life, Plan, Traits, add_lives, plan_changes

CLASSES_NAMED = 5  # in the name of a planted group; of more classes the number is told
NO_PLAN = Plan()
DEFAULT_CLIENTS = 100  # the paper's number; used if the data has no clients of its own


def build_federation(
    data: DataConfig, partition: PartitionConfig, num_clients: int | None, seed: Seed, plan: Plan = NO_PLAN
) -> Federation:
    """Load the dataset and deal it to clients; num_clients None means all natural clients, or 100 clients."""
    return partition_dataset(load_dataset(data), partition, num_clients, seed, data.cache_folder, plan=plan)


def partition_dataset(
    dataset: Dataset,
    partition: PartitionConfig,
    num_clients: int | None,
    seed: Seed,
    cache: Path | None = None,
    dealt: Mapping[str, np.ndarray] | None = None,
    plan: Plan = NO_PLAN,
) -> Federation:
    """Deal a loaded dataset to clients; `dealt` gives each client's training rows instead of a base kind.

    `plan` says whose data change in which round.
    """
    owners = None
    if dealt is None:
        partition = _settle_kind(dataset, partition)
        ids, owners = _client_ids(dataset, partition, num_clients, seed / "partition")
    else:
        ids = _check_dealt(dataset, partition, dealt)
    changes = plan_changes(plan, ids, seed) if plan else []
    seed = seed / "partition"
    traits = _plant(dataset, partition, len(ids), seed, given=dealt is not None)
    traits, lives = add_lives(dataset, traits, changes, len(ids), seed)
    # Some lives go on with the samples that were there before; only the others are dealt some.
    holders = [*range(len(ids)), *(len(ids) + k for k, life in enumerate(lives) if life.dealt)]
    holding = traits.take(holders) if lives else traits
    if dealt is not None or owners is not None:
        _own_samples_only(lives)
    rows = None if dealt is None else [np.asarray(dealt[client], dtype=np.int64) for client in ids]
    if rows is None:
        rows = training_rows(dataset, partition, holding.planted, holding.styles, owners, len(holders), seed)
    if partition.quantity is not None:
        rows = keep_unequal_parts(rows, partition.quantity, (seed / "quantity").numpy())
    tests = test_rows(dataset, partition, rows, holding.styles, owners, seed)
    shares = make_shares(dataset, partition, rows, tests, holding.maps, holding.concepts, seed)
    if lives:
        shares = shares_of_lives(shares, len(ids), lives, traits, dataset.num_classes, seed)
    train, test, shares = _in_their_styles(dataset, partition, shares, traits.styles, seed, cache)
    groups, group_names = _planted_groups(traits, len(ids) + len(lives))
    clients, phases, drifts = timeline(ids, shares, lives, changes, groups, train.y, seed)
    return Federation(
        clients=clients,
        train=train,
        test=test,
        num_classes=dataset.num_classes,
        source=dataset.source,
        scaling=dataset.scaling,
        class_names=dataset.class_names,
        columns=dataset.columns,
        groups=dict(zip(ids, groups or (), strict=False)),
        group_names=group_names,
        newcomers=choose_newcomers(ids, partition.newcomers, (seed / "newcomers").numpy()),
        notes={
            **dataset.notes,
            **traits.planted.notes,
            "partition": describe(partition, given=dealt is not None),
        },
        phases=phases,
        drifts=drifts,
    )


def _in_their_styles(
    dataset: Dataset,
    partition: PartitionConfig,
    shares: list[Share],
    styles: Styles | None,
    seed: Seed,
    cache: Path | None,
) -> tuple[Pool, Pool, list[Share]]:
    """The samples as clients see them: corrupted ones are new samples, and shares point to them."""
    if styles is None or styles.kind != "corruption":
        return dataset.train, dataset.test, shares
    return corrupt_shares(
        dataset.train,
        dataset.test,
        shares,
        styles,
        (partition.feature or FeatureConfig()).severity,
        seed / "corruption",
        dataset.source.sha256,
        cache or DataConfig().cache_folder,
    )


def _plant(dataset: Dataset, partition: PartitionConfig, clients: int, seed: Seed, given: bool) -> Traits:
    """What each client is planted to be: its label group, its style, what its labels mean."""
    styles = None
    if partition.feature is not None:
        styles = choose_styles(dataset, partition.feature, clients, (seed / "feature").numpy())
    planted = PlantedGroups()
    if not given:
        plant = PARTITIONS[partition.kind].plant
        planted = plant(dataset.num_classes, clients, partition, (seed / "plan").numpy())
        planted = _with_class_names(planted, dataset.class_names)
    if partition.concept is None:
        return Traits(planted, styles)
    maps = partition.concept.maps
    return Traits(planted, styles, maps, choose_concepts(maps, clients, (seed / "concept").numpy()))


def _own_samples_only(lives: Sequence[Life]) -> None:
    for life in lives:
        if life.dealt:
            raise InvalidInput(
                f"{life.change.where}.keep = {life.change.drift.keep:g}: these clients have only their own "
                "samples, so expected a concept or feature drift with keep = 1"
            )


def describe(partition: PartitionConfig, given: bool = False) -> str:
    """The partition in words, for reports: its kind and the settings that matter."""
    settings = {
        name: value if not isinstance(value, BaseModel) else value.model_dump()
        for name, value in partition
        if name != "kind" and value != type(partition).model_fields[name].default
    }
    if partition.kind in ("label-groups", "label-pairs", "lda", "quantity"):
        settings = {"alpha": partition.alpha, **settings}
    if partition.kind == "lda":
        settings = {"form": partition.form, **settings}
    kind = "rows given by the user" if given else partition.kind
    return ", ".join([kind, *(f"{name} {value}" for name, value in settings.items())])


def _settle_kind(dataset: Dataset, partition: PartitionConfig) -> PartitionConfig:
    """Replace "auto" by the kind that fits this dataset; refuse a kind that the dataset does not allow."""
    name, feature = dataset.source.dataset, partition.feature
    if partition.kind == "auto":
        if dataset.owners is not None:
            partition = partition.model_copy(update={"kind": "natural"})
        else:
            if feature is None and dataset.domains is not None:
                feature = FeatureConfig(kind="domain")
            partition = partition.model_copy(update={"kind": "iid", "feature": feature})
    if partition.kind == "natural":
        if dataset.owners is None:
            raise InvalidInput(f"partition.kind 'natural': dataset '{name}' has no clients of its own")
        wants_domain = {"domain": True, "corruption": False, "auto": dataset.domains is not None}
        if feature is not None and wants_domain[feature.kind]:
            raise InvalidInput("partition.feature.kind 'domain': natural clients keep their own samples")
    return partition


def _check_dealt(dataset: Dataset, partition: PartitionConfig, dealt: Mapping[str, np.ndarray]) -> list[str]:
    if partition.kind != "auto":
        raise InvalidInput(f"partition.kind '{partition.kind}': rows are given already; leave kind on 'auto'")
    if partition.feature is not None and partition.feature.kind != "corruption":
        raise InvalidInput("partition.feature.kind: where rows are given, only 'corruption' can be added")
    for client, rows in dealt.items():
        if not is_allowed(client):
            raise InvalidInput(f"client '{client}': letters, digits, dot, dash and underscore only")
        if len(rows) == 0 or np.min(rows) < 0 or np.max(rows) >= len(dataset.train):
            raise InvalidInput(
                f"client '{client}': rows from 0 to {len(dataset.train) - 1} expected, at least 1"
            )
    return sorted(dealt)


def _client_ids(
    dataset: Dataset, partition: PartitionConfig, num_clients: int | None, seed: Seed
) -> tuple[list[str], np.ndarray | None]:
    """Ids of the clients, and for natural clients the index of the owner that each client is."""
    if num_clients is not None and num_clients < 1:
        raise InvalidInput(f"num_clients: expected at least 1, got {num_clients}")
    if partition.kind != "natural" or dataset.owners is None:
        num_clients = DEFAULT_CLIENTS if num_clients is None else num_clients
        width = max(3, len(str(num_clients - 1)))
        return [f"c{i:0{width}d}" for i in range(num_clients)], None
    least = partition.min_samples or 1
    sizes = np.bincount(dataset.owners.train, minlength=len(dataset.owners.names))
    owners = np.flatnonzero(sizes >= least)
    wanted = len(owners) if num_clients is None else num_clients
    if wanted > len(owners) or wanted == 0:
        raise InvalidInput(
            f"num_clients: {wanted} natural clients are impossible, because dataset "
            f"'{dataset.source.dataset}' has {len(owners)} with at least {least} training samples"
        )
    if wanted < len(owners):
        owners = np.sort((seed / "owners").numpy().choice(owners, size=wanted, replace=False))
    return [dataset.owners.names[o] for o in owners], owners


def _with_class_names(planted: PlantedGroups, class_names: tuple[str, ...]) -> PlantedGroups:
    """Groups that are made by their classes are called by the names of these, where classes have names."""
    if not planted.label_sets or not class_names:
        return planted
    names = []
    for labels in planted.label_sets:
        words = [class_names[c] for c in labels[:CLASSES_NAMED]]
        more = len(labels) - len(words)
        names.append(" + ".join(words + ([f"{more} more"] if more else [])))
    return replace(planted, names=tuple(names))


def _planted_groups(traits: Traits, count: int) -> tuple[list[int] | None, dict[int, str]]:
    """Clients that are equal in every planted property form one group; there are no groups without any."""
    planted, styles, concepts = traits.planted, traits.styles, traits.concepts
    codes: list[tuple[np.ndarray, list[str]]] = []
    if planted.groups is not None and (len(planted.names) > 1 or (styles is None and concepts is None)):
        codes.append((planted.groups, list(planted.names)))
    if styles is not None:
        codes.append((styles.of_client, list(styles.names)))
    if concepts is not None:
        codes.append((concepts, list(traits.maps)))
    if not codes:
        return None, {}
    table = np.stack([code for code, _ in codes], axis=1)
    combinations, group = np.unique(table, axis=0, return_inverse=True)
    names = {
        g: ", ".join(words[code] for code, (_, words) in zip(row, codes, strict=True))
        for g, row in enumerate(combinations)
    }
    return [int(g) for g in group[:count]], names
