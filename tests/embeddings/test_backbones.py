"""Networks by name: each package's own, stand-ins for those that are not installed, and real ONNX files."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from handful.classifier import FewShotClassifier
from handful.embeddings import backbones
from handful.embeddings.backbones import backbone
from handful.embeddings.efficientnet import EfficientNetLite
from handful.embeddings.runtime import has_runtime, lite_graph
from handful.errors import CheckpointError, DataError, InvalidOptionError
from handful.meta.features import folded
from tests.classifier.drawings import SHAPES, write_folder

needs_runtime = pytest.mark.skipif(not has_runtime(), reason="needs onnxruntime")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "shapes", dict.fromkeys(SHAPES, 3))


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A real ONNX file: a small photo network with random weights."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = folded(EfficientNetLite(width=0.3).eval())
    path = tmp_path / "small.onnx"
    path.write_bytes(lite_graph(network))
    return path


class Patches(nn.Module):
    """A network of 8 features that stands in for those of packages that are not installed here."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 8, stride=8)
        nn.init.orthogonal_(self.convolution.weight, generator=torch.Generator().manual_seed(0))
        nn.init.zeros_(self.convolution.bias)
        self.visual = SimpleNamespace(preprocess_cfg={"size": (40, 40), "mean": (0.4,) * 3, "std": (0.2,) * 3})

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.convolution(images).relu()
        return features

    def encode_image(self, images: Tensor) -> Tensor:
        return self(images).mean((-2, -1))


def stand_in(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType(name)
    if name == "timm":
        config = {"input_size": (3, 48, 48), "mean": (0.5,) * 3, "std": (0.25,) * 3}
        module.create_model = lambda name, pretrained, num_classes: Patches()  # type: ignore[attr-defined]
        module.data = SimpleNamespace(resolve_model_data_config=lambda model: config)  # type: ignore[attr-defined]
    else:
        module.list_pretrained = lambda: [("ViT-B-32", "openai")]  # type: ignore[attr-defined]
        module.create_model = lambda name, pretrained: Patches()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(backbones, "find_spec", lambda name: True)


@pytest.mark.parametrize(("name", "side"), [("timm:vit_small", 48), ("open_clip:ViT-B-32/openai", 40)])
def test_a_network_of_a_package_is_found_again_by_its_name(
    name: str, side: int, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(name.partition(":")[0], monkeypatch)
    assert backbone(name).preprocessing.height == side
    clf = FewShotClassifier(name, cache=tmp_path).fit(folder)
    clf.save(tmp_path / "a.handful")
    again = FewShotClassifier.load(tmp_path / "a.handful", cache=False)
    assert again.embedding_ == again.embedding == name
    np.testing.assert_allclose(again.predict_proba(folder), clf.predict_proba(folder), atol=1e-9)


def test_open_clip_needs_the_name_of_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in("open_clip", monkeypatch)
    with pytest.raises(InvalidOptionError, match=r"open_clip:ViT-B-32/WEIGHTS.* openai"):
        backbone("open_clip:ViT-B-32")


@pytest.mark.slow
def test_a_model_of_transformers_is_read_from_its_folder(tmp_path: Path, folder: Path) -> None:
    transformers = pytest.importorskip("transformers", reason="needs transformers")
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=32, patch_size=16
    )
    transformers.ViTModel(config).save_pretrained(tmp_path / "vit")
    (tmp_path / "vit" / "preprocessor_config.json").write_text(
        '{"size": {"height": 32, "width": 32}, "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}'
    )
    clf = FewShotClassifier(f"hf:{tmp_path / 'vit'}", cache=tmp_path).fit(folder)
    assert clf.n_features_in_ == 32
    clf.save(tmp_path / "a.handful")
    again = FewShotClassifier.load(tmp_path / "a.handful", cache=False)
    np.testing.assert_allclose(again.predict_proba(folder), clf.predict_proba(folder), atol=1e-9)


@pytest.mark.parametrize(
    "name", ["timm:resnet50", "hf:facebook/dinov2-small", "open_clip:ViT-B-32/openai", "onnx:a.onnx"]
)
def test_a_missing_package_is_named_with_its_installation(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backbones, "find_spec", lambda name: None)
    with pytest.raises(DataError, match="pip install"):
        backbone(name)


def test_what_a_package_complains_of_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in("timm", monkeypatch)

    def unknown(name: str, pretrained: bool, num_classes: int) -> nn.Module:
        raise RuntimeError("Unknown model (nothing)\nand a long explanation")

    monkeypatch.setattr(sys.modules["timm"], "create_model", unknown)
    with pytest.raises(DataError, match=r"timm:nothing: Unknown model \(nothing\)$"):
        backbone("timm:nothing")


@needs_runtime
@pytest.mark.slow
def test_an_onnx_file_is_an_embedding_also_in_a_new_process(tmp_path: Path, folder: Path, graph: Path) -> None:
    file, name = tmp_path / "a.handful", f"onnx:{graph}?size=32&mean=0&std=1"
    words = ["fit", str(folder), "-o", str(file), "--embedding", name, "--no-cache"]
    subprocess.run([sys.executable, "-m", "handful", *words], check=True, capture_output=True)
    words = ["predict", str(file), str(folder / "bar" / "0.png")]
    said = subprocess.run([sys.executable, "-m", "handful", *words], check=True, capture_output=True, text=True).stdout
    clf = FewShotClassifier(name, cache=False).fit(folder)
    assert clf.n_features_in_ == 1280
    assert f"\t{clf.predict(folder / 'bar' / '0.png')[0]}\t" in said
    graph.write_bytes(graph.read_bytes() + b"\0\0")
    with pytest.raises((CheckpointError, DataError)):
        FewShotClassifier.load(file)


@needs_runtime
def test_an_onnx_file_says_what_is_wrong_with_it(tmp_path: Path, graph: Path) -> None:
    damaged = tmp_path / "damaged.onnx"
    damaged.write_bytes(graph.read_bytes()[:1000])
    for name, error, message in (
        (f"onnx:{damaged}", DataError, r"damaged\.onnx .*INVALID_PROTOBUF"),
        (f"onnx:{tmp_path / 'missing.onnx'}", DataError, "No such file"),
        ("onnx:/dev/zero", DataError, "/dev/zero .*regular file"),
        (f"onnx:{graph}?colour=blue", InvalidOptionError, r"small\.onnx .*'\?colour=blue'"),
        (f"onnx:{graph}?mean=a", InvalidOptionError, "'a'"),
        ("onnx:", InvalidOptionError, "onnx: "),
    ):
        with pytest.raises(error, match=message):
            backbone(name)


@needs_runtime
@pytest.mark.parametrize("what", ["another file", "a file outside", "much memory"])
def test_a_hostile_graph_is_one_error_and_prints_nothing(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    onnx = pytest.importorskip("onnx", reason="writes the graphs")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "weights").write_bytes(np.ones(3, dtype=np.float32).tobytes())
    make = onnx.helper
    factor = onnx.TensorProto(name="factor", data_type=1, dims=[3, 1, 1], data_location=onnx.TensorProto.EXTERNAL)
    place = "weights" if what == "another file" else str(tmp_path / "weights")
    factor.external_data.extend([onnx.StringStringEntryProto(key="location", value=place)])
    nodes = [make.make_node("Mul", ["images", "factor"], ["scaled"]), make.make_node("Flatten", ["scaled"], ["rows"])]
    if what == "much memory":
        factor = make.make_tensor("size", 7, [1], [10**15])
        nodes[:0] = [make.make_node("ConstantOfShape", ["size"], ["long"])]
        nodes[:1] += [make.make_node("ReduceSum", ["long"], ["factor"], keepdims=0)]
    ends = [make.make_tensor_value_info(name, 1, shape) for name, shape in (("images", ["n", 3, 8, 8]), ("rows", None))]
    model = make.make_model(make.make_graph(nodes, "g", ends[:1], ends[1:], [factor]), ir_version=8)
    model.opset_import[0].version = 17
    onnx.save(model, "a.onnx")
    with pytest.raises(DataError) as caught:
        backbone("onnx:a.onnx").network(torch.ones(1, 3, 8, 8))
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@needs_runtime
def test_embeddings_are_joined_and_travel_in_the_file(tmp_path: Path, folder: Path, graph: Path) -> None:
    name = f"characters+onnx:{graph}?size=32"
    clf = FewShotClassifier(name, cache=tmp_path).fit(folder)
    one = FewShotClassifier("characters", cache=tmp_path).fit(folder)
    assert clf.n_features_in_ == one.n_features_in_ + 1280
    # each part has the same weight in a row of length 1
    np.testing.assert_allclose(
        clf.transform(folder)[:, : one.n_features_in_], one.transform(folder) / np.sqrt(2), atol=1e-12
    )
    clf.save(tmp_path / "a.handful")
    again = FewShotClassifier.load(tmp_path / "a.handful", cache=False)
    np.testing.assert_allclose(again.predict_proba(folder), clf.predict_proba(folder), atol=1e-9)
    with pytest.raises(InvalidOptionError, match="cannot be exported"):
        clf.export_onnx(tmp_path / "a.onnx")


@needs_runtime
def test_leave_one_out_chooses_among_embeddings(tmp_path: Path, folder: Path, graph: Path) -> None:
    random = f"onnx:{graph}?size=32"
    fits = {name: FewShotClassifier(name, cache=tmp_path).fit(folder) for name in ("characters", random)}
    best = min(fits, key=lambda name: fits[name]._state.loss)
    chosen = FewShotClassifier(f"auto:{random},characters", cache=tmp_path).fit(folder)
    assert chosen.embedding_ == best == "characters"
    np.testing.assert_allclose(chosen.predict_proba(folder), fits[best].predict_proba(folder), atol=1e-9)


def test_a_name_that_is_nearly_right_is_corrected(folder: Path) -> None:
    with pytest.raises(InvalidOptionError, match=r"'photograps'.*'photographs'"):
        FewShotClassifier("photograps").fit(folder)
    with pytest.raises(InvalidOptionError, match="auto:characters,photographs"):
        FewShotClassifier("auto:").fit(folder)
