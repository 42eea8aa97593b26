# SPDX-License-Identifier: Apache-2.0
"""`[privacy]`: one dial for what leaves a client, and the few numbers behind it."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt

from feddag.core.message import options

Level = Literal["off", "guarded", "private", "strict"]
UpdateMode = Literal["auto", "plain", "secagg", "dpsgd", "dpsgd+secagg", "central"]

# What `auto` stands for at each level.
MODES: dict[str, str] = {"off": "plain", "guarded": "plain", "private": "secagg", "strict": "dpsgd+secagg"}
SAMPLES_PER_VECTOR = 50  # `guarded`: below this number, membership in a class can be told from its vectors


@options
class CountPrivacy:
    """Numbers of samples of each class."""

    epsilon: Annotated[float, Gt(0), Le(64)] = 0.5  # of one noisy histogram; the classes share no sample


@options
class SubspacePrivacy:
    """Principal vectors of each class."""

    epsilon: Annotated[float, Gt(0), Le(64)] = 2.0  # of all vectors of one signature together
    dims: Annotated[int, Ge(2), Le(1024)] = 16  # size of the public basis that samples are projected to
    vectors: Annotated[int, Ge(1), Le(8)] = 1  # per class; the second one drowns in the noise below n = 1,000


@options
class UpdatePrivacy:
    """Trained parameters."""

    # plain: as they are. secagg: the server sees sums over clusters only. dpsgd: noise in local training.
    # central: the server adds noise. auto: plain at off and guarded, secagg at private, both at strict.
    mode: UpdateMode = "auto"
    min_group: Annotated[int, Ge(2)] = 3  # fewer clients are not summed
    clip: Annotated[float, Gt(0)] = 1.0  # largest norm of one sample's gradient (central: of one update)
    noise: Annotated[float, Gt(0)] = 2.0  # standard deviation of the noise divided by `clip`


@options
class PrivacyOptions:
    """What leaves a client, and how it is protected."""

    level: Level = "off"  # off | guarded (small classes send no vectors) | private | strict
    delta: Annotated[float, Gt(0), Lt(1)] = 1e-5  # δ of every (ε, δ)
    budget: Annotated[float, Gt(0)] = 8.0  # a client that would exceed this ε does not answer
    limits: str = ""  # a file with the clients' own limits, which they enforce themselves
    counts: CountPrivacy = CountPrivacy()
    subspaces: SubspacePrivacy = SubspacePrivacy()
    update: UpdatePrivacy = UpdatePrivacy()

    @property
    def on(self) -> bool:
        """Whether anything is protected."""
        return self.level != "off"

    @property
    def noisy(self) -> bool:
        """Whether counts and vectors are noisy."""
        return self.level in ("private", "strict")

    @property
    def mode(self) -> str:
        """How updates leave."""
        return MODES[self.level] if self.update.mode == "auto" else self.update.mode

    @property
    def masks(self) -> bool:
        """Whether updates leave only as parts of masked sums."""
        return self.on and "secagg" in self.mode

    @property
    def dpsgd(self) -> bool:
        """Whether local training is noisy."""
        return self.on and "dpsgd" in self.mode

    @property
    def central(self) -> bool:
        """Whether the server adds noise to means."""
        return self.on and self.mode == "central"

    def __post_init__(self) -> None:
        """Refuse settings that would have no effect."""
        if self.level == "off" and self.update.mode not in ("auto", "plain"):
            raise ValueError(
                f"update.mode = {self.update.mode!r} has no effect at level 'off': "
                "use level guarded, private or strict"
            )
        if self.level == "strict" and "dpsgd" not in self.mode:
            raise ValueError(
                f"update.mode = {self.update.mode!r} does not protect single samples, which level 'strict' "
                "promises: use dpsgd or dpsgd+secagg, or level private"
            )
