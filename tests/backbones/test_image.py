"""Image encoders: equal to their equations, independent rows, correct gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from seqwise.backbones.image import (
    ClipEncoder,
    Convolution,
    ConvolutionalEncoder,
    FeatureEncoder,
    ImageEncoder,
    ImageNorm,
    PatchEncoder,
    ResidualBlock,
    build_image_encoder,
    normalize_pixels,
    shift_and_flip,
)
from seqwise.layers.record import record
from seqwise.resolved_settings import ResolvedSettings, ResolvedTransformerSettings

SMALL = ResolvedTransformerSettings(heads=2, hidden=8)


def draw_pixels(*shape: int) -> Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(1))


def build_encoders() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "convolutional": ImageEncoder(ConvolutionalEncoder(8, 16, 1)),
        "patches": ImageEncoder(PatchEncoder(8, 16, 4, 2, SMALL)),
        "post-norm patches": ImageEncoder(
            PatchEncoder(8, 16, 4, 1, ResolvedTransformerSettings(heads=2, hidden=8, norm="post"))
        ),
    }


def test_a_convolution_equals_a_hand_computed_sum():
    layer = Convolution(2, 3, stride=2)
    x = torch.randn(1, 5, 5, 2)
    weight, bias = layer.convolution.weight, layer.convolution.bias
    y = layer(x).detach()
    assert y.shape == (1, 3, 3, 3)
    for row, column, channel in [(0, 0, 0), (1, 1, 2), (2, 0, 1)]:
        total = float(bias.detach()[channel])  # type: ignore[union-attr]
        for i in range(3):
            for j in range(3):
                down, right = 2 * row + i - 1, 2 * column + j - 1
                if 0 <= down < 5 and 0 <= right < 5:
                    total += sum(float(weight.detach()[channel, c, i, j] * x[0, down, right, c]) for c in range(2))
        assert float(y[0, row, column, channel]) == pytest.approx(total, abs=1e-5)


def test_a_residual_block_starts_as_the_identity():
    block, x = ResidualBlock(4), torch.randn(2, 3, 3, 4)
    assert torch.equal(block(x), x)
    nn.init.normal_(block.conv2.convolution.weight)
    expected = x + block.conv2(torch.relu(block.conv1(block.norm(x))))
    assert torch.allclose(block(x), expected)


def test_the_image_norm_equals_a_group_norm_with_one_group():
    ours, theirs = ImageNorm(4), nn.GroupNorm(1, 4)
    for layer in (ours, theirs):
        nn.init.constant_(layer.weight, 1.5)
        nn.init.constant_(layer.bias, 0.25)
    x = torch.randn(3, 5, 5, 4)
    assert torch.allclose(ours(x), theirs(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1), atol=1e-5)
    by_hand = (x[1] - x[1].mean()) / (x[1].var(unbiased=False) + 1e-5).sqrt() * 1.5 + 0.25
    assert torch.allclose(ours(x)[1], by_hand, atol=1e-5)


def test_the_grid_may_be_coarser():
    assert ConvolutionalEncoder(16, 32, grid=4)(draw_pixels(1, 32, 32, 3)).shape == (1, 16, 16)
    assert ConvolutionalEncoder(16, 64, grid=1).side == 1


def test_pixels_are_normalised_to_minus_one_to_one():
    assert normalize_pixels(torch.tensor([0, 255], dtype=torch.uint8), torch.float32).tolist() == [-1.0, 1.0]


@pytest.mark.parametrize(("size", "side"), [(8, 4), (16, 8), (30, 8), (32, 8), (33, 5), (64, 8), (100, 7)])
def test_convolutions_leave_at_most_eight_by_eight_regions(size: int, side: int):
    encoder = ConvolutionalEncoder(16, size)
    assert encoder.side == side
    assert encoder(draw_pixels(2, size, size, 3)).shape == (2, side**2, 16)


def test_a_patch_is_its_pixels_row_by_row_times_a_matrix():
    encoder = PatchEncoder(8, 12, 4, 1, SMALL).eval()
    image = draw_pixels(1, 12, 12, 3)
    with record(encoder) as activations:
        encoder(image)
    patch = image[0, 4:8, 8:12].float().flatten() / 127.5 - 1  # second row, third column
    embedded = encoder.input_projection.weight @ patch + encoder.input_projection.bias + encoder.positions.weight[5]
    first = encoder.encoder.layer[0].attention_norm
    expected = first.normalise(embedded)  # type: ignore[operator]
    assert torch.allclose(activations["encoder.layer.0.attention_norm.norm"][0, 5], expected, atol=1e-5)


def test_a_side_that_is_no_multiple_of_the_patch_is_padded_with_black():
    torch.manual_seed(0)
    encoder = PatchEncoder(8, 10, 4, 1, SMALL).eval()
    image = draw_pixels(1, 10, 10, 3)
    padded = torch.zeros(1, 12, 12, 3, dtype=torch.uint8)
    padded[:, :10, :10] = image
    assert encoder.side == 3
    assert torch.equal(encoder(image), encoder(padded))


@pytest.mark.parametrize("name", build_encoders())
def test_every_image_is_encoded_independently(name: str):
    encoder = build_encoders()[name].eval()
    images = draw_pixels(3, 16, 16, 3)
    together = encoder(images).vectors
    for number in range(3):
        separate = encoder(images[number : number + 1]).vectors[0]
        assert torch.allclose(together[number], separate, atol=1e-5)


@pytest.mark.parametrize("name", build_encoders())
def test_encoder_gradients_match_finite_differences(name: str):
    encoder = build_encoders()[name].double().eval()
    for parameter in encoder.parameters():  # zeros would hide mistakes
        nn.init.normal_(parameter, std=0.3)
    image = (torch.rand(1, 16, 16, 3, dtype=torch.float64) * 255).requires_grad_()
    names = [n for n, _ in encoder.named_parameters() if n.endswith(("bias", "positions.weight"))][:4]
    parameters = [dict(encoder.named_parameters())[n] for n in names]
    assert torch.autograd.gradcheck(lambda *_: encoder(image).vectors.sum((0, 1)), parameters, atol=1e-4)


def test_regions_have_positions():
    """Two regions of the same colour have different vectors, once positions are learned."""
    encoder = ConvolutionalEncoder(8, 32).eval()
    nn.init.normal_(encoder.positions.weight)
    regions = encoder(torch.full((1, 32, 32, 3), 99, dtype=torch.uint8))[0].unflatten(0, (8, 8))
    assert not torch.allclose(regions[3, 3], regions[4, 4], atol=1e-2)
    without_positions = regions - encoder.positions.weight.unflatten(0, (8, 8))
    assert torch.allclose(without_positions[3, 3], without_positions[4, 4], atol=1e-5)


def test_frames_beyond_the_length_of_a_clip_change_nothing():
    torch.manual_seed(0)
    encoder = ClipEncoder(ConvolutionalEncoder(8, 16)).eval()
    clips, lengths = draw_pixels(2, 3, 16, 16, 3), torch.tensor([3, 1])
    memory = encoder(clips, lengths)
    assert memory.vectors.shape == (2, 3 * 16, 8)
    assert memory.lengths.tolist() == [48, 16]
    shorter_clip = encoder(clips[1:, :1], torch.tensor([1]))
    assert torch.allclose(memory.vectors[1, :16], shorter_clip.vectors[0], atol=1e-5)


def test_the_regions_of_a_frame_are_pooled_and_get_time_positions():
    torch.manual_seed(0)
    image_encoder = ConvolutionalEncoder(8, 16)
    encoder = ClipEncoder(image_encoder).eval()
    clip = draw_pixels(1, 16, 16, 3).repeat(2, 1, 1, 1)[None]
    first, second = encoder(clip, torch.tensor([2])).vectors[0].unflatten(0, (2, 16))
    grid = image_encoder(clip[0, :1]).unflatten(1, (8, 8))[0]
    # Position 0 is (0, 1, 0, 1, …): sin 0 and cos 0.
    assert torch.allclose(first[0] - torch.tensor([0.0, 1.0] * 4), grid[:2, :2].mean((0, 1)), atol=1e-5)
    shift = second - first
    assert torch.allclose(shift, shift[:1].expand_as(shift), atol=1e-5)
    assert shift.abs().max() > 0.1


def test_features_are_projected_and_normalised():
    encoder = FeatureEncoder(5, 8, 3)
    values = torch.randn(2, 3, 5)
    memory = encoder(values, torch.tensor([3, 2]))
    projected = values[1, 2] @ encoder.input_projection.weight.T + encoder.input_projection.bias
    normalized = (projected - projected.mean()) / (projected.var(unbiased=False) + 1e-5).sqrt()
    assert torch.allclose(memory.vectors[1, 2], normalized + encoder.positions.weight[2], atol=1e-5)
    assert memory.lengths.tolist() == [3, 2]


def test_shifting_moves_pixels_and_repeats_the_edge():
    torch.manual_seed(3)
    image = draw_pixels(20, 6, 6, 3)
    moved = shift_and_flip(image, 2, flip=False)
    for before, after in zip(image, moved):
        matches = []
        for down in range(-2, 3):
            for right in range(-2, 3):
                rows = (torch.arange(6) + down).clamp(0, 5)
                columns = (torch.arange(6) + right).clamp(0, 5)
                matches.append(torch.equal(before[rows][:, columns], after))
        assert sum(matches) == 1
    assert torch.equal(shift_and_flip(image, 0, flip=False), image)


def test_half_of_the_images_are_mirrored():
    torch.manual_seed(0)
    image = draw_pixels(200, 4, 4, 3)
    moved = shift_and_flip(image, 0, flip=True)
    mirrored = [torch.equal(after, before.flip(1)) for before, after in zip(image, moved)]
    unchanged = [torch.equal(after, before) for before, after in zip(image, moved)]
    assert all(a or b for a, b in zip(mirrored, unchanged))
    assert 70 < sum(mirrored) < 130


def test_all_frames_of_a_clip_move_together():
    torch.manual_seed(1)
    clip = draw_pixels(4, 1, 6, 6, 3).repeat(1, 3, 1, 1, 1)
    moved = shift_and_flip(clip, 2, flip=True)
    assert moved.shape == clip.shape
    assert torch.equal(moved[:, 0], moved[:, 1])
    assert not torch.equal(moved, clip)


@pytest.mark.parametrize(
    ("caption", "encoder_class"),
    [
        ({"encoder": "convolutional", "image_size": 16, "blocks": 0}, ImageEncoder),
        ({"encoder": "patches", "image_size": 16, "patch": 4}, ImageEncoder),
        ({"encoder": "convolutional", "image_size": 16, "frames": True}, ClipEncoder),
        ({"encoder": "features"}, FeatureEncoder),
    ],
)
def test_settings_choose_the_encoder(caption: dict, encoder_class: type):
    settings = ResolvedSettings(caption=caption, network={"width": 8}, transformer={"heads": 2})
    encoder = build_image_encoder(settings, 5, 3)
    assert isinstance(encoder, encoder_class)
    assert encoder.width == 8


def test_regions_and_feature_maps_can_be_recorded():
    model = nn.ModuleDict({"encoder": ImageEncoder(ConvolutionalEncoder(8, 32))})
    with record(model) as activations:
        model["encoder"](draw_pixels(1, 32, 32, 3))
    assert activations["encoder.regions"].shape == (1, 64, 8)
    assert activations["encoder.encoder.stage.0.maps"].shape == (1, 16, 16, 8)
