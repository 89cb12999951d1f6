"""Archives of `torch.export` are read: the same outputs as PyTorch's, or one line that says why
not."""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from spaces.codegen.executable import Executable, compile_module, run_once
from spaces.deploy.bench import errors
from spaces.frontends.inputs import make_inputs
from spaces.frontends.model import Model, load_model
from spaces.frontends.model_copy import load_model_copy, save_model_copy
from spaces.lowering.extract_tasks import extract
from spaces.lowering.lower import lower
from tests.needed import needed_package
from tuner.errors import TunerError
from tuner.request.model_spec import IntRange, ModelSpec

torch = needed_package("torch")
nn = torch.nn
pytestmark = pytest.mark.tvm

LLVM = '{"kind":"llvm","num-cores":1}'


def write_archive(
    path: Path, network: Any, *args: Any, dynamic: Any = None, names: Any = None
) -> Path:
    """Export a network as it is, in training mode or not, into an archive.

    Args:
        names: of its dimensions, kept with it; a text is written as it is.
    """
    text = names if isinstance(names, str) else json.dumps(names)
    with warnings.catch_warnings():  # PyTorch warns of its own code
        warnings.simplefilter("ignore")
        program = torch.export.export(network, args, dynamic_shapes=dynamic)
        torch.export.save(program, path, extra_files={"dims.json": text} if names else None)
    return path


def load(path: Path, **spec: Any) -> Model:
    return load_model(ModelSpec(str(path), **spec))


def refusal(path: Path, **spec: Any) -> str:
    with pytest.raises(TunerError) as refused:
        load(path, **spec)
    assert refused.value.exit_code == 1
    assert "\n" not in str(refused.value)
    return str(refused.value)


def relative_error(model: Model, network: Any, values: Any = (), *, restore: Any = None) -> float:
    """How far the lowered and compiled model is from PyTorch, over its largest output.

    Args:
        restore: makes the network's arguments from its tensors where they are nested.
    """
    executable = compile_module(lower(model.module, LLVM), LLVM)
    return error_of(executable, network, make_inputs(model.inputs, values), restore)


def largest_error(model: Model, network: Any, dim: str, *sizes: int) -> float:
    """The largest relative error of a model for some sizes of its one symbolic dimension."""
    executable = compile_module(lower(model.module, LLVM), LLVM)
    return max(
        error_of(executable, network, make_inputs([i.at({dim: size}) for i in model.inputs]))
        for size in sizes
    )


def error_of(executable: Executable, network: Any, inputs: Any, restore: Any = None) -> float:
    got = run_once(executable, inputs)
    tensors = [torch.from_numpy(array) for array in inputs]
    with torch.no_grad():
        expected = network(*(restore(tensors) if restore else tensors))
    leaves = torch.utils._pytree.tree_leaves(expected)
    assert [a.dtype.name for a in got] == [str(t.dtype).removeprefix("torch.") for t in leaves]
    return errors(got, [leaf.numpy() for leaf in leaves])[1]


class Embedded(nn.Module):  # type: ignore[misc, name-defined]
    """Token numbers in, one vector a sentence out; the table is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 16)
        self.back = nn.Linear(16, 50, bias=False)
        self.back.weight = self.table.weight

    def forward(self, ids: Any) -> Any:
        return self.back(self.table(ids).mean(1))


class Buffers(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.randn(8))
        self.register_buffer("passing", torch.randn(8), persistent=False)
        self.register_buffer("unused", torch.randn(8))
        self.register_buffer("count", torch.tensor(3))
        self.plain = torch.randn(8)

    def forward(self, x: Any) -> Any:
        return x * self.scale + self.passing + self.plain, x + self.count


class Nested(nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, q: Any, more: Any) -> Any:
        return {"sum": q + more["k"], "product": [q @ more["k"].T]}


class Calls(nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any) -> Any:
        return self.function(*args)


def mlp() -> Any:
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4), nn.Softmax(-1)).eval()


def some_norm(channels: int) -> Any:
    """A batch norm whose statistics are not the neutral ones."""
    norm = nn.BatchNorm2d(channels)
    norm.running_mean.normal_()
    norm.running_var.uniform_(0.5, 2)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


def conv_net(*, training: bool = False) -> Any:
    """Two convolutions with batch norms."""
    network = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        some_norm(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False),
        some_norm(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )
    return network.train(training)


def encoder() -> Any:
    return nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval()


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        pytest.param(mlp, (5, 16), id="mlp"),
        pytest.param(conv_net, (2, 3, 8, 8), id="conv"),
        pytest.param(encoder, (2, 7, 32), id="encoder", marks=pytest.mark.long),
        pytest.param(lambda: Buffers().eval(), (3, 8), id="buffers"),
        pytest.param(lambda: nn.Linear(16, 8).double(), (2, 16), id="float64"),
    ],
)
def test_a_network_computes_what_it_does_in_pytorch(
    tmp_path: Path, make: Callable[[], Any], shape: tuple[int, ...]
) -> None:
    network = make()
    dtype = next((p.dtype for p in network.parameters()), torch.float32)
    example = torch.zeros(shape, dtype=dtype)
    model = load(write_archive(tmp_path / "net.pt2", network, example))
    assert (model.name, model.kind) == ("net", "torch")
    assert [(i.shape, i.dtype) for i in model.inputs] == [(shape, str(dtype).split(".")[1])]
    assert relative_error(model, network) < 1e-5


@pytest.mark.parametrize(
    ("network", "shape"),
    [(nn.Linear(16, 8).half(), (2, 16)), (nn.Conv2d(3, 4, 3).half(), (1, 3, 5, 5))],
)
def test_half_precision_stays_half_precision(
    tmp_path: Path, network: Any, shape: tuple[int, ...]
) -> None:
    model = load(write_archive(tmp_path / "net.pt2", network, torch.zeros(shape).half()))
    assert model.inputs[0].dtype == "float16"
    assert relative_error(model, network) < 2e-3


def test_integers_are_multiplied_as_integers(tmp_path: Path) -> None:
    network = Calls(lambda a, b: a @ b)
    examples = [torch.ones((2, 2), dtype=torch.int64) for _ in range(2)]
    model = load(write_archive(tmp_path / "net.pt2", network, *examples))
    big = tuple((i.name, IntRange(2**26 + 1, 2**26 + 99)) for i in model.inputs)
    assert relative_error(model, network, big) == 0


def test_scaled_sums_of_products_keep_their_factors(tmp_path: Path) -> None:
    network = Calls(
        lambda c, a, b: (
            torch.addmm(c, a, b, beta=0.5, alpha=3),
            torch.addmm(c, a, b, beta=0),
            torch.baddbmm(c[None], a[None], b[None], beta=2, alpha=0.25),
        )
    )
    shapes = [(2, 4), (2, 3), (3, 4)]
    model = load(write_archive(tmp_path / "net.pt2", network, *map(torch.ones, shapes)))
    assert relative_error(model, network) < 1e-5


def test_integer_inputs_are_drawn_from_their_range(tmp_path: Path) -> None:
    network = Embedded().eval()
    path = write_archive(tmp_path / "net.pt2", network, torch.zeros((3, 6), dtype=torch.int64))
    values = (("ids", IntRange(0, 49)),)
    model = load(path, inputs=values)
    assert [(i.name, i.shape, i.dtype) for i in model.inputs] == [("ids", (3, 6), "int64")]
    assert len(np.unique(make_inputs(model.inputs, values)[0])) > 2
    assert relative_error(model, network, values) < 1e-5
    assert "--input words: no such input" in refusal(path, inputs=(("words", IntRange(0, 1)),))


def test_nested_arguments_become_inputs_in_order(tmp_path: Path) -> None:
    network = Nested()
    path = write_archive(tmp_path / "net.pt2", network, torch.ones(3, 8), {"k": torch.ones(3, 8)})
    model = load(path)
    assert [i.name for i in model.inputs] == ["q", "more_k"]
    assert relative_error(model, network, restore=lambda t: (t[0], {"k": t[1]})) < 1e-5


def test_arguments_that_are_no_tensors_are_not_fed(tmp_path: Path) -> None:
    network = Calls(lambda x, times, mask: x * times if mask is None else x * mask)
    model = load(write_archive(tmp_path / "net.pt2", network, torch.ones(2, 3), 5, None))
    assert [i.name for i in model.inputs] == ["args_0"]
    assert relative_error(model, network, restore=lambda t: (*t, 5, None)) == 0


def test_weights_are_constants_and_nothing_is_computed_from_them_alone(tmp_path: Path) -> None:
    from tvm import relax
    from tvm.ir import Op

    model = load(write_archive(tmp_path / "net.pt2", encoder(), torch.zeros(2, 7, 32)))
    assert len(model.module["main"].params) == 1
    calls: list[Any] = []

    def visit(node: Any) -> None:
        if isinstance(node, relax.Call) and node.op == Op.get("relax.call_tir"):
            calls.append(node.args[1])

    relax.analysis.post_order_visit(lower(model.module, LLVM)["main"], visit)
    assert calls
    assert all(any(isinstance(a, relax.Var) for a in arguments) for arguments in calls)


def test_batch_norms_are_folded_into_convolutions(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "net.pt2", conv_net(), torch.zeros(2, 3, 8, 8))
    tasks = [task.name for task in extract(lower(load(path).module, LLVM), LLVM)]
    assert sum(name.startswith("fused_conv2d") for name in tasks) == 2
    assert not [name for name in tasks if "divide" in name or "subtract" in name]


BATCH = {0: torch.export.Dim("batch", min=1, max=16)}


def test_a_dynamic_dimension_takes_its_size_from_the_shape(tmp_path: Path) -> None:
    network = nn.Conv2d(3, 4, 3).eval()
    example = torch.zeros(4, 3, 8, 8)
    path = write_archive(tmp_path / "net.pt2", network, example, dynamic=(BATCH,))
    assert "--shape input=?,3,8,8" in refusal(path)
    one, many = (load(path, shapes=(("input", (n, 3, 8, 8)),)) for n in (1, 16))
    assert [m.inputs[0].shape[0] for m in (one, many)] == [1, 16]
    assert one.content_hash != many.content_hash
    assert relative_error(one, network) < 1e-5
    assert "--shape input: dimension 0: the model takes at most 16, not 17" in refusal(
        path, shapes=(("input", (17, 3, 8, 8)),)
    )
    assert "dimension 1 is 3" in refusal(path, shapes=(("input", (1, 4, 8, 8)),))
    assert "no such input; the model has input" in refusal(path, shapes=(("x", (1, 3, 8, 8)),))


def test_a_dimension_that_inputs_share_is_given_once(tmp_path: Path) -> None:
    batch = {0: torch.export.Dim("batch")}
    network = Calls(lambda x, y: x + y)
    path = write_archive(
        tmp_path / "net.pt2", network, *map(torch.zeros, [(3, 2)] * 2), dynamic=((batch, batch),)
    )
    model = load(path, shapes=(("args_0", (7, 2)),))
    assert [i.shape for i in model.inputs] == [(7, 2), (7, 2)]


def test_a_copy_is_the_same_model(tmp_path: Path) -> None:
    from tvm_ffi import structural_equal

    path = write_archive(tmp_path / "net.pt2", mlp(), torch.zeros(4, 16), dynamic=(BATCH,))
    model = load(path, shapes=(("input", (3, 16)),))
    save_model_copy(model, tmp_path / "copy")
    path.unlink()
    again = load_model_copy(tmp_path / "copy")
    assert structural_equal(again.module, model.module)
    assert (again.name, again.inputs, again.content_hash) == (
        "net",
        model.inputs,
        model.content_hash,
    )
    keys = [[t.key for t in extract(lower(m.module, LLVM), LLVM)] for m in (model, again)]
    assert keys[0] == keys[1]


def test_other_weights_are_another_model(tmp_path: Path) -> None:
    hashes = {
        load(write_archive(tmp_path / "net.pt2", mlp(), torch.zeros(4, 16))).content_hash
        for _ in range(2)
    }
    assert len(hashes) == 2


def test_importing_says_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = write_archive(tmp_path / "net.pt2", encoder(), torch.zeros(2, 7, 32))
    capfd.readouterr()
    lower(load(path).module, LLVM)
    assert tuple(capfd.readouterr()) == ("", "")


def noisy_branch(x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda x: x + torch.rand_like(x), lambda x: x * 2, (x,))


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (conv_net(training=True), "batch norm in training mode; call model.eval()"),
        (nn.Dropout(0.5).train(), "aten.native_dropout.default (node native_dropout) draws random"),
        (Calls(lambda x: x + torch.randn_like(x)), "aten.randn_like.default (node randn_like)"),
        (Calls(noisy_branch), "draws random numbers"),
        pytest.param(
            Calls(torch.linalg.svdvals),
            "does not know operator aten._linalg_svd.default (node ",
            marks=pytest.mark.long,
        ),
        (Calls(lambda x: (x, 5)), "cannot import the graph: Unsupported output type"),
    ],
)
def test_networks_that_would_come_out_wrong_are_refused(
    tmp_path: Path, network: Any, says: str
) -> None:
    assert says in refusal(write_archive(tmp_path / "net.pt2", network, torch.ones(2, 3, 8, 8)))


def test_an_operator_that_nobody_imports_is_named_with_its_node(tmp_path: Path) -> None:
    network = Calls(lambda x: torch.linalg.svd(x)[1])
    said = refusal(write_archive(tmp_path / "net.pt2", network, torch.zeros(4, 4)))
    assert "operator aten._linalg_svd.default (node " in said


class Doubles(nn.Module):  # type: ignore[misc, name-defined]
    """Constants that lowering makes of a network's: folded, shifted, scaled, split and cut out."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.shifted = some_norm(3), nn.Sequential(nn.Conv2d(3, 3, 1), some_norm(3))
        self.wider = nn.ConvTranspose2d(3, 3, 4, stride=2, padding=1)
        self.joined, self.tapped = nn.Conv2d(6, 4, 1), nn.Conv2d(4, 2, 5, padding=2)

    def forward(self, x: Any) -> Any:
        parts = torch.relu(self.shifted(x)), torch.relu(self.norm(torch.relu(x)))
        wide = [torch.relu(self.wider(part)) for part in parts]
        return self.tapped(self.joined(torch.cat(wide, 1)).mean((2, 3), keepdim=True))


def test_what_tvm_does_not_import_goes_by_way_of_onnx(tmp_path: Path) -> None:
    """Such as convolutions in float64, of which no constant becomes float32."""
    needed_package("onnxscript")
    network = Doubles().double().eval()
    path = write_archive(tmp_path / "net.pt2", network, torch.zeros(1, 3, 5, 5).double())
    model = load(path)
    assert model.kind == "torch"
    assert relative_error(model, network) < 1e-12
    save_model_copy(model, tmp_path / "copy")
    path.unlink()
    assert load_model_copy(tmp_path / "copy").inputs == model.inputs


class Attends(nn.Module):  # type: ignore[misc, name-defined]
    """Attention with a causal mask, and positions from a table."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("positions", torch.randn(1, 40, 16))
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        batch, length, _ = x.shape
        x = x + self.positions[:, :length]
        parts = self.qkv(x).view(batch, length, 3, 2, 8).permute(2, 0, 3, 1, 4)
        mask = torch.ones(length, length, dtype=torch.bool).tril()
        found = nn.functional.scaled_dot_product_attention(*parts.unbind(0), attn_mask=mask)
        return self.out(found.transpose(1, 2).reshape(batch, length, 16))


class Joins(nn.Module):  # type: ignore[misc, name-defined]
    """Made smaller, larger again, and joined with what it was."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.out = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(8, 2, 1)
        self.pool = nn.MaxPool2d(2)
        self.larger = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=False)

    def forward(self, x: Any) -> Any:
        high = self.down(x)
        return self.out(torch.cat([self.larger(self.pool(high)), high], 1))


def test_attention_is_right_at_every_length(tmp_path: Path) -> None:
    needed_package("onnxscript")
    network = Attends().eval()
    dynamic = ({1: torch.export.Dim("length", max=40)},)
    path = write_archive(tmp_path / "net.pt2", network, torch.randn(1, 6, 16), dynamic=dynamic)
    model = load(path, dims=(("x_1", tuple(range(1, 33))),))
    assert largest_error(model, network, "x_1", 1, 2, 3, 7, 16, 31, 40) < 1e-5


@pytest.mark.long
def test_an_image_that_is_joined_with_what_it_was_is_right_at_every_size(tmp_path: Path) -> None:
    needed_package("onnxscript")
    network = Joins().eval()
    dynamic = ({2: 2 * torch.export.Dim("h", max=32)},)
    path = write_archive(tmp_path / "net.pt2", network, torch.randn(1, 3, 8, 6), dynamic=dynamic)
    model = load(path, dims=(("x_2_base", (2, 3, 8)),))
    assert largest_error(model, network, "x_2_base", 2, 3, 5, 8, 13) < 1e-5


def test_a_model_that_changes_its_buffers_is_refused(tmp_path: Path) -> None:
    class Counts(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("runs", torch.zeros(1))

        def forward(self, x: Any) -> Any:
            self.runs.add_(1)
            return x * self.runs

    said = refusal(write_archive(tmp_path / "net.pt2", Counts(), torch.ones(3)))
    assert "changes the buffer runs" in said


def half_sum(path: Path, **names: str) -> tuple[Path, Any]:
    """An archive of a network over (2 * half, 4) and (half, 4)."""
    half = torch.export.Dim("half", max=32)
    network = Calls(lambda x, y: torch.relu(x + y.repeat(2, 1)))
    args = (torch.ones(6, 4), torch.ones(3, 4))
    dynamic = (({0: 2 * half}, {0: half}),)
    return write_archive(path, network, *args, dynamic=dynamic, names=names), network


def test_a_symbolic_dimension_is_named_after_its_first_input_and_axis(tmp_path: Path) -> None:
    network = Calls(lambda x, y: x.relu() + y)
    batch, width = torch.export.Dim("batch"), torch.export.Dim("width")
    path = write_archive(
        tmp_path / "net.pt2",
        network,
        torch.ones(3, 4),
        torch.ones(3, 4),
        dynamic=(({0: batch, 1: width}, {0: batch, 1: width}),),
    )
    assert "--dim args_0_0=1..128" in refusal(path)
    dims = (("args_0_0", (1, 5)), ("args_0_1", (2, 4)))
    model = load(path, dims=dims)
    assert [i.dims for i in model.inputs] == [("args_0_0", "args_0_1")] * 2
    assert [i.shape for i in model.inputs] == [(5, 4), (5, 4)]
    assert len(model.shapes) == 4
    said = refusal(path, dims=(("batch", (1, 5)),))
    assert said.startswith("--dim batch: no such dimension; the model has args_0_0, args_0_1")
    assert "dims.json" in said


def test_names_that_are_kept_with_the_archive_are_those_of_its_dimensions(tmp_path: Path) -> None:
    network = conv_net()
    path = write_archive(
        tmp_path / "net.pt2",
        network,
        torch.zeros(4, 3, 8, 8),
        dynamic=(BATCH,),
        names={"input_0": "batch"},
    )
    model = load(path, dims=(("batch", (1, 7, 16)),))
    assert model.inputs[0].dims == ("batch", 3, 8, 8)
    save_model_copy(model, tmp_path / "copy")
    path.unlink()
    assert load_model_copy(tmp_path / "copy").inputs == model.inputs


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ({"x": "batch"}, "x is no symbolic dimension of an input; there are args_0_0"),
        ({"args_0_0": "two words"}, "'two words' is no name"),
        ({"args_0_0": 5}, "'5' is no name"),
        (["args_0_0"], "write an object such as"),
        ("{", "not JSON"),
    ],
)
def test_names_that_mean_nothing_are_refused(tmp_path: Path, names: Any, says: str) -> None:
    network, example = Calls(lambda x: x.relu()), torch.zeros(4, 8)
    path = write_archive(tmp_path / "net.pt2", network, example, dynamic=((BATCH,),), names=names)
    said = refusal(path)
    assert "dims.json" in said
    assert says in said


def test_two_dimensions_cannot_have_one_name(tmp_path: Path) -> None:
    batch, width = torch.export.Dim("batch"), torch.export.Dim("width")
    network = Calls(lambda x: x.relu())
    path = write_archive(
        tmp_path / "net.pt2",
        network,
        torch.ones(3, 4),
        dynamic=(({0: batch, 1: width},),),
        names={"args_0_0": "T", "args_0_1": "T"},
    )
    assert "two dimensions are called T" in refusal(path)


def test_a_dimension_has_the_same_name_wherever_it_stands(tmp_path: Path) -> None:
    batch = {0: torch.export.Dim("batch")}
    network = Calls(lambda x, y: x + y)
    path = write_archive(
        tmp_path / "net.pt2",
        network,
        *map(torch.zeros, [(3, 2)] * 2),
        dynamic=((batch, batch),),
        names={"args_1_0": "batch"},
    )
    model = load(path, dims=(("batch", (3, 7)),))
    assert [i.dims for i in model.inputs] == [("batch", 2), ("batch", 2)]


def test_sizes_beyond_what_the_dimension_was_exported_for_are_refused(tmp_path: Path) -> None:
    batch = {0: torch.export.Dim("batch", min=4, max=16)}
    path = write_archive(tmp_path / "net.pt2", mlp(), torch.zeros(6, 16), dynamic=(batch,))
    assert refusal(path, dims=(("input_0", (8, 17)),)) == (
        "--dim input_0: the model takes at most 16, not 17"
    )
    assert "the model takes at least 4, not 3" in refusal(path, dims=(("input_0", (3, 8)),))


def test_what_is_compiled_computes_sizes_beyond_the_exported_bounds(tmp_path: Path) -> None:
    network = mlp()
    path = write_archive(tmp_path / "net.pt2", network, torch.zeros(4, 16), dynamic=(BATCH,))
    model = load(path, dims=(("input_0", (1, 16)),))
    assert largest_error(model, network, "input_0", 0, 1, 16, 17, 1000) < 1e-5


def test_a_dimension_computed_from_another_follows_it(tmp_path: Path) -> None:
    path, network = half_sum(tmp_path / "net.pt2", args_1_0="half")
    model = load(path, dims=(("half", (1, 3, 8)),))
    assert [i.dims for i in model.inputs] == [("half_x2", 4), ("half", 4)]
    assert [i.shape for i in model.inputs] == [(16, 4), (8, 4)]
    assert largest_error(model, network, "half", 1, 5, 100) == 0
    assert "--dim half: the model takes at most 32" in refusal(path, dims=(("half", (33,)),))
    fixed = load(path, shapes=(("args_1", (5, 4)),))
    assert [i.shape for i in fixed.inputs] == [(10, 4), (5, 4)]
    said = refusal(path, shapes=(("args_0", (12, 4)), ("args_1", (5, 4))))
    assert said == "input args_0: dimension 0 is 10 in the model, but --shape says 12"


def test_a_dimension_that_no_input_has_by_itself_is_the_base_of_one(tmp_path: Path) -> None:
    half = torch.export.Dim("half")
    network = Calls(lambda x: x.reshape(-1, 2).sum(1))
    path = write_archive(tmp_path / "net.pt2", network, torch.ones(6), dynamic=(({0: 2 * half},),))
    model = load(path, dims=(("args_0_0_base", (1, 4)),))
    assert [i.dims for i in model.inputs] == [("args_0_0_base_x2",)]
    assert largest_error(model, network, "args_0_0_base", 5) < 1e-6


def test_files_that_are_no_whole_archives_are_refused(tmp_path: Path) -> None:
    whole = write_archive(tmp_path / "net.pt2", mlp(), torch.zeros(4, 16)).read_bytes()
    path = tmp_path / "broken.pt2"
    assert "no such file" in refusal(path)
    for content in (b"", b"this is not a model", whole[: len(whole) // 2]):
        path.write_bytes(content)
        assert "is not a torch.export archive" in refusal(path)
    torch.save({"weight": torch.ones(3)}, path)
    assert "holds no exported program" in refusal(path)


def test_a_damaged_weight_is_noticed(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "net.pt2", mlp(), torch.zeros(4, 16))
    with zipfile.ZipFile(path) as archive:
        weight = next(i for i in archive.infolist() if i.filename.endswith("weight_0"))
    content = bytearray(path.read_bytes())
    content[weight.header_offset + len(weight.filename) + 200] ^= 0xFF
    path.write_bytes(content)
    assert f"damaged: the checksum of {weight.filename} is wrong" in refusal(path)


def test_an_operator_that_nobody_registered_is_named(tmp_path: Path) -> None:
    @torch.library.custom_op("acme::frobnicate", mutates_args=())  # type: ignore[untyped-decorator]
    def frobnicate(x: torch.Tensor) -> torch.Tensor:  # type: ignore[name-defined]
        return x.clone()

    frobnicate.register_fake(torch.empty_like)
    network = Calls(lambda x: torch.ops.acme.frobnicate(x))
    path = write_archive(tmp_path / "net.pt2", network, torch.ones(3))
    assert "the importer does not know operator acme.frobnicate.default (node" in refusal(path)
    renamed = tmp_path / "renamed.pt2"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(renamed, "w") as new:
        for part in old.namelist():
            new.writestr(part, old.read(part).replace(b"ops.acme.", b"ops.nope."))
    said = refusal(renamed)
    assert "PyTorch here does not know operator nope.frobnicate.default (node frobnicate)" in said


class Planted:
    """Makes a folder when it is unpickled."""

    def __init__(self, ran: Path) -> None:
        self.ran = ran

    def __reduce__(self) -> Any:
        return Path.mkdir, (self.ran,)


def with_planted(path: Path, ran: Path) -> None:
    """Have an archive's weights, constants and sample inputs say that they are pickles, and be."""
    planted = pickle.dumps(Planted(ran))
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    for name, data in members.items():
        if name.endswith("weights_config.json"):
            config = json.loads(data)
            for weight in config["config"].values():
                weight["use_pickle"] = True
            members[name] = json.dumps(config).encode()
        elif "/data/weights/" in name or name.endswith("sample_inputs/model.pt"):
            members[name] = planted
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)


def test_an_archive_in_the_place_of_a_copy_is_not_opened(tmp_path: Path) -> None:
    path = write_archive(tmp_path / "net.pt2", mlp(), torch.zeros(4, 16))
    copy = tmp_path / "copy"
    save_model_copy(load(path), copy)
    assert not list(copy.glob("*.pt2"))
    about = json.loads((copy / "model.json").read_text())
    assert about["format"] == 2

    ran = tmp_path / "ran"
    with_planted(path, ran)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception):  # noqa: B017, PT011
            torch.export.load(str(path))
    assert ran.exists(), "PyTorch's loader runs what is planted, so the test can fail"
    ran.rmdir()

    path.rename(copy / "model.pt2")
    (copy / "model.json").write_text(json.dumps({**about, "format": 1}))
    with pytest.raises(TunerError, match="written by another version of the tuner"):
        load_model_copy(copy)
    (copy / "model.json").write_text(json.dumps(about))
    assert load_model_copy(copy).kind == "torch"
    assert not ran.exists()


def test_a_copy_of_tied_weights_has_them_once(tmp_path: Path) -> None:
    from tvm_ffi import structural_equal

    path = write_archive(tmp_path / "net.pt2", Embedded(), torch.zeros(4, 16, dtype=torch.int64))
    model = load(path)
    save_model_copy(model, tmp_path / "copy")
    assert structural_equal(load_model_copy(tmp_path / "copy").module, model.module)
    assert (tmp_path / "copy" / "module.params").stat().st_size < 2 * 50 * 16 * 4
