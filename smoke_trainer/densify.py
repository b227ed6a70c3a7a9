"""When to add and remove Gaussians: the paper's adaptive density control, a fixed budget, and MCMC; and how.

The training loop calls two hooks: `learn` after the optimizer's step, and `refine` before the next iteration. So what is
evaluated, saved or written after an iteration has not been refined by it, as in the reference: clones and a reset of opacity
would cost it up to 10 dB.

Behind the strategies are the verbs: each changes parameters, Adam's moments and the strategy's state together. `model` holds one
parameter tensor per group with one row per Gaussian, `state` a dict of tensors [P] that a strategy keeps beside them. A mask is
a boolean tensor [P].
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, Sequence, Tuple, Type, Union

import torch
from torch import Tensor

from smoke_trainer.backends import to_device
from smoke_trainer.config import DensifyConfig
from smoke_trainer.model import GROUPS, Gaussians, logit
from smoke_trainer.renderers import RenderOutput
from splatfix.kernels import projection
from splatfix.kernels.helpers import binomial_table, compute_relocation

BUDGET_FACTOR_BELOW = 100.0  # a smaller budget multiplies the initial count
MCMC_GROWTH = 1.05  # the count grows by this factor each time
State = Dict[str, Tensor]
MOMENTS = ("exp_avg", "exp_avg_sq")
SPLIT_INTO = 2
SPLIT_SHRINK = 0.8 * SPLIT_INTO  # the scales of a split Gaussian are divided by this, as in the reference
RESET_OPACITY = 0.01
MAX_RATIO = 51  # copies at one position that `compute_relocation` distinguishes, as in the reference
ALL, NONE = slice(None), slice(0)
NOISE_STEEPNESS, NOISE_CENTER = 100.0, 0.995


@dataclass(frozen=True)
class DensifyEvent:
    """What one step changed: counts of Gaussians, and whether opacity was reset."""

    cloned: int = 0
    split: int = 0
    pruned: int = 0
    opacity_reset: bool = False


@dataclass
class DefaultStrategy:
    """The paper's adaptive density control (Kerbl et al. 2023, section 5), of which the other strategies change some.

    - A high average gradient of the position on screen means missing detail: small Gaussians are cloned, large ones split.
    - Nearly transparent Gaussians are pruned.
    - From time to time all opacities are reset; what the images do not need stays transparent and is pruned.
    - After the first reset, Gaussians too large in the world are pruned as well. (Not those too large on screen: in the
      reference that test never acts, because the radii are zeroed just before it, and gsplat has it off; in every run
      compared it cost SSIM.)

    `state` holds tensors [P] that are kept in step with the Gaussians and are part of a checkpoint: `grad2d`, the sum of gradient
    norms in NDC units; `count`, the views in that sum; `radii`, the largest radius on screen in pixels. Random numbers come from
    `generator`, on the CPU, so that a run repeats on any device. `extent` is the scene's, in world units.
    """

    config: DensifyConfig
    extent: float
    initial_count: int
    generator: torch.Generator
    state: State = field(default_factory=dict)

    def regularization(self, model: Gaussians) -> Union[Tensor, float]:
        """A scalar to add to the loss."""
        return 0.0

    def is_due(self, iteration: int) -> bool:
        """Tell whether Gaussians are added and removed after this iteration."""
        config = self.config
        in_range = config.refine_start_iter < iteration < config.refine_stop_iter
        return in_range and iteration % config.refine_every == 0

    @property
    def last_refinement(self) -> int:
        """The last iteration after which Gaussians are added and removed."""
        every = self.config.refine_every
        return (self.config.refine_stop_iter - 1) // every * every

    def learn(self, iteration: int, model: Gaussians, output: RenderOutput, xyz_lr: float) -> None:
        """Add the gradients and radii of this iteration's view to the state, for the Gaussians that it shows.

        Iterations count from 1; `xyz_lr` is the learning rate of positions.
        """
        if not self.state:
            self._clear(model)
        grad2d = output.grad2d()
        if grad2d is None or iteration >= self.config.refine_stop_iter:
            return
        visible, state = output.radii > 0, self.state
        state["grad2d"] += torch.where(visible, grad2d, torch.zeros_like(grad2d))
        state["count"] += visible
        state["radii"] = torch.where(
            visible, torch.maximum(state["radii"], output.radii.float()), state["radii"]
        )

    def refine(self, iteration: int, model: Gaussians) -> DensifyEvent:
        """Grow and prune on schedule, once this iteration is complete; reset opacity on its own, never after the last growth."""
        config, grown, pruned = self.config, (0, 0), 0
        if self.is_due(iteration):
            grown = self._grow(iteration, model)
            useless = model.opacities().detach()[:, 0] < config.min_opacity
            if iteration > config.reset_every:
                useless |= model.scales().detach().amax(dim=1) > config.max_scale3d * self.extent
            pruned = remove(model, self.state, useless)
            self._clear(model)
        due = iteration % config.reset_every == 0 or (
            config.reset_at_start and iteration == config.refine_start_iter
        )
        reset = due and 0 < iteration < min(config.reset_stop_iter, self.last_refinement)
        if reset:
            reset_opacity(model)
        return DensifyEvent(*grown, pruned, reset)

    def average_grad2d(self) -> Tensor:
        """Mean gradient norm [P] over the views that showed each Gaussian; 0 where none did."""
        return self.state["grad2d"] / self.state["count"].clamp_min(1.0)

    def _grow(self, iteration: int, model: Gaussians) -> Tuple[int, int]:
        """Clone and split; returns both counts."""
        return self.clone_or_split(model, self.average_grad2d() >= self.config.grow_grad2d)

    def clone_or_split(self, model: Gaussians, mask: Tensor) -> Tuple[int, int]:
        """Clone the small and split the large Gaussians of a mask [P]; returns both counts."""
        sizes = model.scales().detach().amax(dim=1)
        mask = mask & (sizes <= sizes.median().clamp_min(self.config.grow_below3d * self.extent))
        large = sizes > self.config.grow_scale3d * self.extent
        cloned = clone(model, self.state, mask & ~large)
        # Clones stand at the end and are not split in the same step.
        to_split = torch.cat([mask & large, mask.new_zeros(cloned)])
        return cloned, split(model, self.state, to_split, self.generator)

    def _clear(self, model: Gaussians) -> None:
        for key in ("grad2d", "count", "radii"):
            self.state[key] = torch.zeros(len(model), device=model.device)


class BudgetStrategy(DefaultStrategy):
    """Density control towards a fixed number of Gaussians (the idea of "Taming 3DGS", Mallick et al. 2024).

    - The count follows a curve from the initial number to the budget; each step may add only what the curve allows.
    - Of the Gaussians above the gradient threshold some are drawn, in proportion to a score: average gradient, opacity
      and radius on screen. (The paper's scores also use edges and per-pixel weights of sampled cameras, which need a
      rasterizer that returns them.)
    """

    @property
    def final_count(self) -> int:
        """The largest number of Gaussians the run may end with."""
        budget = self.config.budget
        if budget < BUDGET_FACTOR_BELOW:
            budget *= self.initial_count
        return int(budget)

    def target(self, iteration: int) -> int:
        """The count allowed at an iteration: a concave quadratic that reaches the budget at the last refinement."""
        start = self.config.refine_start_iter
        progress = min(max((iteration - start) / max(1, self.last_refinement - start), 0.0), 1.0)
        return int(self.initial_count + (self.final_count - self.initial_count) * progress * (2.0 - progress))

    def _grow(self, iteration: int, model: Gaussians) -> Tuple[int, int]:
        grad2d = self.average_grad2d()
        radius = self.state["radii"] / self.state["radii"].max().clamp_min(1.0)
        score = grad2d / grad2d.mean().clamp_min(1e-12) + model.opacities().detach()[:, 0] + radius
        score = torch.where(grad2d >= self.config.grow_grad2d, score, torch.zeros_like(score))
        count = min(max(0, self.target(iteration) - len(model)), int((score > 0).sum()))
        mask = torch.zeros(len(model), dtype=torch.bool, device=model.device)
        if count > 0:
            picks = torch.multinomial(score.cpu(), count, generator=self.generator)
            mask[picks.to(model.device)] = True
        return self.clone_or_split(model, mask)


class McmcStrategy(DefaultStrategy):
    """3DGS as Markov chain Monte Carlo (Kheradmand et al. 2024). No state beside the parameters.

    - Dead Gaussians (nearly transparent) are relocated onto live ones, drawn in proportion to opacity.
    - The count grows by 5 % each time up to a cap; new Gaussians are added onto live ones.
    - Opacity and scale of those that come to share a position are corrected so that the image stays the same.
    - Noise shaped like each Gaussian, strong where opacity is low, lets them explore.
    - Regularization of opacity and scale lets useless ones die.
    """

    def regularization(self, model: Gaussians) -> Union[Tensor, float]:
        """Mean opacity and mean scale, weighted."""
        config = self.config
        return config.opacity_reg * model.opacities().mean() + config.scale_reg * model.scales().mean()

    def learn(self, iteration: int, model: Gaussians, output: RenderOutput, xyz_lr: float) -> None:
        inject_noise(model, self.config.noise_lr * xyz_lr, self.generator)

    def refine(self, iteration: int, model: Gaussians) -> DensifyEvent:
        config, added, relocated = self.config, 0, 0
        if self.is_due(iteration):
            dead = model.opacities().detach()[:, 0] <= config.min_opacity
            relocated = relocate(model, dead, config.min_opacity, self.generator)
            count = min(config.cap_max, int(MCMC_GROWTH * len(model))) - len(model)
            added = sample_add(model, self.state, count, config.min_opacity, self.generator)
        return DensifyEvent(cloned=added, pruned=relocated)


STRATEGIES: Dict[str, Type[DefaultStrategy]] = {
    "default": DefaultStrategy,
    "mcmc": McmcStrategy,
    "budget": BudgetStrategy,
}


def keep_and_add(model: Gaussians, state: State, kept: Any, added: Dict[str, Tensor]) -> None:
    """Keep the Gaussians of a mask, and add others by raw parameters per group; their moments and state start at zero."""
    count = len(added["xyz"])

    def fill(rows: Tensor) -> Tensor:
        return torch.cat([rows[kept], rows.new_zeros((count, *rows.shape[1:]))])

    for group in model.optimizer.param_groups:
        name, old = group["name"], group["params"][0]
        new = torch.cat([old.detach()[kept], added[name]]).requires_grad_(True)
        moments = model.optimizer.state.pop(old, None)
        if moments:
            moments.update({key: fill(moments[key]) for key in MOMENTS})
            model.optimizer.state[new] = moments
        group["params"][0] = new
        model.params[name] = new
    for key, rows in state.items():
        state[key] = fill(rows)


def rows_of(model: Gaussians, rows: Any) -> Dict[str, Tensor]:
    """The raw parameters of some Gaussians, by a mask, indices or a slice."""
    return {name: model.params[name].detach()[rows] for name in GROUPS}


def remove(model: Gaussians, state: State, mask: Tensor) -> int:
    """Remove the Gaussians of a mask; returns how many."""
    removed = int(mask.sum())
    if removed:
        keep_and_add(model, state, ~mask, rows_of(model, NONE))
    return removed


def clone(model: Gaussians, state: State, mask: Tensor) -> int:
    """Add a copy of every Gaussian of a mask; returns how many."""
    count = int(mask.sum())
    if count:
        keep_and_add(model, state, ALL, rows_of(model, mask))
    return count


def split(model: Gaussians, state: State, mask: Tensor, generator: torch.Generator) -> int:
    """Replace every Gaussian of a mask by two smaller ones drawn from its own distribution; returns how many."""
    count = int(mask.sum())
    if count:
        chosen = rows_of(model, mask)
        halves = {name: rows.repeat(SPLIT_INTO, *([1] * (rows.dim() - 1))) for name, rows in chosen.items()}
        offsets = sample_offsets(halves["scaling"].exp(), halves["rotation"], generator)
        halves["xyz"] = halves["xyz"] + offsets
        halves["scaling"] = halves["scaling"] - torch.log(torch.tensor(SPLIT_SHRINK)).item()
        keep_and_add(model, state, ~mask, halves)
    return count


def reset_opacity(model: Gaussians) -> None:
    """Lower all opacities to RESET_OPACITY at most, and clear their moments."""
    parameter = model.params["opacity"]
    with torch.no_grad():
        parameter.copy_(logit(torch.clamp(model.opacities().detach(), max=RESET_OPACITY)))
    _clear_moments(model, ("opacity",))


def relocate(model: Gaussians, dead: Tensor, min_opacity: float, generator: torch.Generator) -> int:
    """MCMC: move the Gaussians of the mask `dead` onto live ones, drawn in proportion to opacity; returns how many."""
    count = int(dead.sum())
    if count == 0 or count == len(model):
        return 0
    sources = _draw_to_share(model, torch.nonzero(~dead)[:, 0], count, min_opacity, generator)
    with torch.no_grad():
        for name, rows in rows_of(model, sources).items():
            model.params[name][dead] = rows
    return count


def sample_add(
    model: Gaussians, state: State, count: int, min_opacity: float, generator: torch.Generator
) -> int:
    """MCMC: add `count` Gaussians at the positions of existing ones, drawn in proportion to opacity; returns how many."""
    if count <= 0:
        return 0
    everyone = torch.arange(len(model), device=model.device)
    sources = _draw_to_share(model, everyone, count, min_opacity, generator)
    keep_and_add(model, state, ALL, rows_of(model, sources))
    return count


def _draw_to_share(
    model: Gaussians, candidates: Tensor, count: int, min_opacity: float, generator: torch.Generator
) -> Tensor:
    """Draw Gaussians whose positions others will share: indices [count], with replacement, in proportion to opacity.

    Their opacity and scale are corrected for how many there will be, so that the image stays the same; moments start anew.
    """
    weights = model.opacities().detach()[candidates, 0]
    picks = torch.multinomial(weights.cpu(), count, replacement=True, generator=generator)
    sources = candidates[picks.to(weights.device)]
    ratio = torch.bincount(sources, minlength=len(model))[sources] + 1
    opacity, scales = compute_relocation(
        model.opacities().detach()[sources],
        model.scales().detach()[sources],
        ratio.clamp(max=MAX_RATIO),
        binomial_table(MAX_RATIO, sources.device),
        MAX_RATIO,
    )
    opacity = opacity.clamp(min_opacity, 1.0 - torch.finfo(torch.float32).eps)
    with torch.no_grad():
        model.params["opacity"][sources] = logit(opacity)
        model.params["scaling"][sources] = torch.log(scales)
    _clear_moments(model, GROUPS, sources)
    return sources


def inject_noise(model: Gaussians, strength: float, generator: torch.Generator) -> None:
    """MCMC: move positions by covariance times normal noise, weighted by sigmoid(100 ((1 - opacity) - 0.995))."""
    weight = torch.sigmoid(NOISE_STEEPNESS * ((1.0 - model.opacities().detach()) - NOISE_CENTER))
    rotation = rotation_matrices(model.params["rotation"].detach())
    axes = rotation * model.scales().detach()[:, None, :]
    normal = to_device(torch.randn(len(model), 3, generator=generator), model.device)
    step = torch.einsum("nij,nkj,nk->ni", axes, axes, normal * weight)
    with torch.no_grad():
        model.params["xyz"] += strength * step


def sample_offsets(scales: Tensor, rotations: Tensor, generator: torch.Generator) -> Tensor:
    """One displacement [N, 3] drawn from each Gaussian (scales [N, 3], quaternions [N, 4])."""
    normal = torch.randn(scales.shape, generator=generator).to(scales.device)
    return torch.einsum("nij,nj->ni", rotation_matrices(rotations), normal * scales)


def rotation_matrices(quaternions: Tensor) -> Tensor:
    """Rotations [N, 3, 3] of quaternions (w, x, y, z) [N, 4], which are normalised first."""
    unit = torch.nn.functional.normalize(quaternions, dim=1)
    return projection.rotation_matrices(unit.t()).permute(2, 0, 1).contiguous()


def _clear_moments(model: Gaussians, groups: Sequence[str], rows: Any = slice(None)) -> None:
    for name in groups:
        moments = model.optimizer.state.get(model.params[name])
        if moments:
            for key in MOMENTS:
                moments[key][rows] = 0.0
