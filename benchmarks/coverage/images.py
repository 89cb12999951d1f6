"""Networks of images, video and short series: from torchvision and timm, or from code here.

Importing this file imports none of these: who makes a network does.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from benchmarks.coverage.made import Made, Make

_TORCHVISION = {
    **dict.fromkeys(
        ("resnet18", "mobilenet_v2", "mobilenet_v3_small", "efficientnet_b0", "densenet121"), 96
    ),
    **dict.fromkeys(
        ("shufflenet_v2_x0_5", "squeezenet1_1", "mnasnet0_5", "regnet_y_400mf", "googlenet"), 96
    ),
    **dict.fromkeys(("vgg11_bn", "alexnet", "convnext_tiny"), 96),
    **dict.fromkeys(("swin_t", "vit_b_32", "maxvit_t"), 224),
}
"""Image sizes by name."""
_TIMM = {
    **dict.fromkeys(("resnext50_32x4d", "seresnet50", "ghostnet_100", "hrnet_w18_small"), 96),
    **dict.fromkeys(("repvgg_a0", "res2net50_14w_8s", "dla34", "tf_efficientnet_lite0"), 96),
    **dict.fromkeys(("cspresnet50", "xception41"), 96),
    **dict.fromkeys(("mixer_s32_224", "deit_tiny_patch16_224", "convmixer_768_32"), 224),
    **dict.fromkeys(("poolformer_s12", "coatnet_0_rw_224", "levit_128s"), 224),
    **dict.fromkeys(("twins_svt_small", "pit_ti_224"), 224),
    **dict.fromkeys(("edgenext_xx_small", "mobilevit_xxs"), 256),
    **dict.fromkeys(("nfnet_f0",), 192),
    **dict.fromkeys(("inception_v3",), 299),
}
_UNSEEN = {
    **dict.fromkeys(("mobilenetv3_large_100", "tf_efficientnetv2_b0", "resnet26d"), 96),
    **dict.fromkeys(("convnextv2_atto", "selecsls42b", "ese_vovnet19b_dw"), 96),
    **dict.fromkeys(("mobilenetv4_conv_small", "fastvit_t8"), 128),
    **dict.fromkeys(("resmlp_12_224", "visformer_tiny"), 224),
}
"""Of timm; chosen before any of them was tuned."""


def _image(module: Any, size: int) -> Made:
    import torch

    return Made(module.eval(), {"x": torch.randn(1, 3, size, size)})


def _torchvision(name: str, size: int) -> Made:
    import torchvision

    more = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
    return _image(torchvision.models.get_model(name, **more), size)


def _timm(name: str, size: int) -> Made:
    import timm

    return _image(timm.create_model(name, exportable=True), size)


def _segmentation(name: str, size: int) -> Made:
    import torchvision
    from torch import nn

    class Out(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            found = getattr(torchvision.models.segmentation, name)
            self.network = found(weights=None, weights_backbone=None)

        def forward(self, x: Any) -> Any:
            return self.network(x)["out"]

    return _image(Out(), size)


def _video() -> Made:
    import torch
    import torchvision

    network = torchvision.models.video.r3d_18().eval()
    return Made(network, {"x": torch.randn(1, 3, 4, 32, 32)})


def _generator() -> Made:
    import torch
    from torch import nn

    network = nn.Sequential(
        nn.ConvTranspose2d(16, 32, 4, 1, 0),
        nn.BatchNorm2d(32),
        nn.ReLU(),
        nn.ConvTranspose2d(32, 16, 4, 2, 1, groups=4),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 4, 2, 1),
        nn.Tanh(),
    )
    return Made(network.eval(), {"x": torch.randn(2, 16, 1, 1)})


def _recurrent(kind: str, both_ways: bool) -> Made:
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            made = getattr(nn, kind)
            self.cells = made(16, 24, num_layers=2, batch_first=True, bidirectional=both_ways)
            self.out = nn.Linear(48 if both_ways else 24, 5)

        def forward(self, x: Any) -> Any:
            return self.out(self.cells(x)[0])

    return Made(Net().eval(), {"x": torch.randn(2, 12, 16)})


def _encoder() -> Made:
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    network = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return Made(network.eval(), {"x": torch.randn(2, 10, 32)})


IMAGES: dict[str, Make] = {
    **{name: partial(_torchvision, name, size) for name, size in _TORCHVISION.items()},
    **{name: partial(_timm, name, size) for name, size in _TIMM.items()},
    "deeplabv3_mobilenet_v3_large": partial(_segmentation, "deeplabv3_mobilenet_v3_large", 96),
    "fcn_resnet50": partial(_segmentation, "fcn_resnet50", 64),
    "lraspp_mobilenet_v3_large": partial(_segmentation, "lraspp_mobilenet_v3_large", 96),
    "r3d_18": _video,
    "dcgan_generator": _generator,
    "lstm": partial(_recurrent, "LSTM", False),
    "lstm_both_ways": partial(_recurrent, "LSTM", True),
    "gru": partial(_recurrent, "GRU", False),
    "rnn_both_ways": partial(_recurrent, "RNN", True),
    "transformer_encoder": _encoder,
}
"""Networks whose dimensions are all known."""

UNSEEN: dict[str, Make] = {
    f"{name}, unseen": partial(_timm, name, size) for name, size in _UNSEEN.items()
}
"""Networks that nobody tuned for: what a user has after a minute is measured on them."""


def with_batch(make: Make) -> Made:
    import torch

    made = make()
    tuned, tried = {"batch": tuple(range(1, 17))}, {"batch": (*range(1, 14), 16, 17, 23)}
    example = torch.cat([made.inputs["x"]] * 3)  # an exporter takes a batch of 1 for a number
    return Made(made.module, {"x": example}, {"x": {0: "batch"}}, tuned, tried)


def with_length(make: Make) -> Made:
    """Of a series of so many steps."""
    made = make()
    tuned, tried = {"steps": tuple(range(1, 65))}, {"steps": (1, 2, 3, 7, 12, 31, 64, 90)}
    return Made(made.module, made.inputs, {"x": {1: "steps"}}, tuned, tried)


def unet() -> Made:
    import torch
    from torch import nn

    def block(inputs: int, outputs: int) -> Any:
        return nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()
        )

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.lower, self.inner = block(3, 8), block(8, 16), block(16, 16)
            self.upper, self.up, self.out = block(32, 8), block(16, 8), nn.Conv2d(8, 2, 1)
            self.pool = nn.MaxPool2d(2)
            self.larger = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)

        def forward(self, x: Any) -> Any:
            high = self.down(x)
            low = self.lower(self.pool(high))
            low = self.upper(torch.cat([self.larger(self.inner(self.pool(low))), low], 1))
            return self.out(self.up(torch.cat([self.larger(low), high], 1)))

    sizes = {"h": tuple(range(4, 17)), "w": tuple(range(4, 17))}
    tried = {"h": (1, 2, 3, 5, 7, 8, 11, 16, 19), "w": (2, 1, 7, 5, 3, 13, 11, 16, 20)}
    inputs = {"x": torch.randn(1, 3, 32, 48)}
    return Made(UNet().eval(), inputs, {"x": {2: "4*h", 3: "4*w"}}, sizes, tried)
