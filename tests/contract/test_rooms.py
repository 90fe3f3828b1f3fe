"""The rooms and their walls: what may import what, what a policy can see, and what is never loaded."""

import ast
import inspect
import operator
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from sagesched.policy import POLICIES, Belief
from sagesched.request import Features, Request
from sagesched.settings import Scheduling

ROOT = Path(__file__).parents[2]
ROOMS = {
    "core": "sagesched",
    "store": "sagesched_store",
    "sidecar": "sagesched_sidecar",
    "plugin": "sagesched_vllm",
    "operator": "sagesched_operator",
    "sim": "sagesched_sim",
    "cli": "sagesched_cli",
}
WIRE = ["sagesched_client", "sagesched_pb"]
"""The room `proto` has the contract, and the client that hosts may ship with it."""
TOP_LEVEL = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
NOT_IN_CORE = {"time", "os", "asyncio", "logging", "random", "datetime", "socket", "threading", "subprocess", "io"}
CORE_MAY_USE = {"numpy", "msgspec"}
PLUGIN_MAY_USE = {"numpy", "msgspec", "sagesched", "sagesched_vllm"}
DOORS_TO_VLLM = {"scheduler": {"vllm"}, "metrics": {"vllm", "prometheus_client"}}
"""The plugin's modules that load what vLLM brings along."""
HEAVY = {"torch", "transformers", "sentence_transformers", "tensorflow", "jax"}
ONLY_IN_RPC = {"grpc", "grpc_health", "grpc_reflection", "google", "sagesched_pb"}


def modules_of(room: str) -> list[Path]:
    found = sorted((ROOT / room / ROOMS[room]).rglob("*.py"))
    assert found, f"{room} has no modules: has it moved?"
    return found


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """What the file imports, and whether it does so when it is loaded; relative imports as their own package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    late = {
        id(inner)
        for outer in ast.walk(tree)
        if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for inner in ast.walk(outer)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((name.name, id(node) not in late) for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            own = path.relative_to(ROOT).parts[1]
            yield own if node.level else node.module or "", id(node) not in late


def top(module: str) -> str:
    return module.partition(".")[0]


@pytest.mark.parametrize("folder", TOP_LEVEL, ids=lambda path: path.name)
def test_no_top_level_folder_is_a_package(folder: Path) -> None:
    assert not (folder / "__init__.py").exists(), "it would shadow whatever else has that name"


def test_no_folder_under_tests_is_a_package() -> None:
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_operator_is_python_s() -> None:
    assert operator.itemgetter(1)("ab") == "b"
    assert not Path(inspect.getfile(operator)).is_relative_to(ROOT)


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_holds_one_package(room: str) -> None:
    packages = [path.parent.name for path in (ROOT / room).glob("*/__init__.py")]
    assert packages == [ROOMS[room]]


def test_the_wire_room_holds_the_contract_and_its_client() -> None:
    assert sorted(path.parent.name for path in (ROOT / "proto").glob("*/__init__.py")) == WIRE


@pytest.mark.parametrize("path", modules_of("core"), ids=lambda path: path.stem)
def test_core_has_no_clock_no_environment_and_no_host(path: Path) -> None:
    """Its times and random numbers are arguments, so the same calls give the same order anywhere."""
    in_embed = "embed" in path.relative_to(ROOT).parts
    allowed = CORE_MAY_USE | {"sagesched"} | ({"tokenizers", "sentence_transformers"} if in_embed else set())
    for module, _ in imports(path):
        assert top(module) not in NOT_IN_CORE, module
        assert top(module) in allowed | sys.stdlib_module_names, module


@pytest.mark.parametrize("path", modules_of("core"), ids=lambda path: path.stem)
def test_core_neither_opens_files_nor_prints(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id not in {"open", "print", "input", "eval", "exec", "__import__"}, node.lineno


@pytest.mark.parametrize(
    ("room", "closed_to"),
    [
        (
            "core",
            {
                *(
                    "sagesched_store",
                    "sagesched_sidecar",
                    "sagesched_vllm",
                    "sagesched_operator",
                    "sagesched_sim",
                    "sagesched_cli",
                ),
                *("qdrant_edge", "kopf"),
            },
        ),
        ("store", {"sagesched_sidecar", "sagesched_vllm", "sagesched_operator", "sagesched_sim", "sagesched_cli"}),
        ("plugin", set(ROOMS.values()) - {"sagesched", "sagesched_vllm"} | {"qdrant_edge", "grpc", "kopf", "aiohttp"}),
        ("sidecar", {"sagesched_vllm", "sagesched_operator", "sagesched_sim", "sagesched_cli", "qdrant_edge", "kopf"}),
        (
            "operator",
            {
                "sagesched_store",
                "sagesched_vllm",
                "sagesched_sidecar",
                "sagesched_sim",
                "sagesched_cli",
                "sagesched_pb",
            },
        ),
        ("sim", {"sagesched_sidecar", "sagesched_vllm", "sagesched_operator", "sagesched_cli", "kopf"}),
    ],
)
def test_rooms_do_not_reach_into_those_beside_them(room: str, closed_to: set[str]) -> None:
    for path in modules_of(room):
        assert not {top(module) for module, _ in imports(path)} & closed_to, path


@pytest.mark.parametrize("room", ROOMS)
def test_heavy_packages_are_imported_only_when_chosen(room: str) -> None:
    for path in modules_of(room):
        assert not {top(module) for module, at_load in imports(path) if at_load} & HEAVY, path


@pytest.mark.parametrize("path", modules_of("plugin"), ids=lambda path: path.stem)
def test_the_plugin_needs_nothing_but_core_numpy_and_msgspec(path: Path) -> None:
    """What it loads by itself; an engine's image has vLLM, and needs nothing else of ours."""
    allowed = PLUGIN_MAY_USE | DOORS_TO_VLLM.get(path.stem, set()) | sys.stdlib_module_names
    assert {top(module) for module, at_load in imports(path) if at_load} <= allowed


TRAP = """
import sys

class Trap:
    asked = []
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy!r}:
            self.asked.append(name)
        return None

sys.meta_path.insert(0, Trap())
import {modules}
print(Trap.asked, sorted(set(sys.modules) & {heavy!r}))
"""


def test_loading_everything_asks_for_no_heavy_package() -> None:
    """Caught at the import itself, so that it holds on a machine where none of them is installed."""
    modules = [
        ".".join(path.relative_to(ROOT / room).with_suffix("").parts)
        for room in ("core", "store", "sidecar", "plugin", "operator")
        for path in modules_of(room)
        if path.stem not in ("__main__", "__init__") and (room != "plugin" or path.stem not in DOORS_TO_VLLM)
    ]
    code = TRAP.format(heavy=HEAVY, modules=", ".join(modules))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[] []"


def test_a_sidecar_without_a_grpc_address_loads_no_grpc() -> None:
    code = f"import sys, sagesched_sidecar.server; print(sorted(set(sys.modules) & {ONLY_IN_RPC!r}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "[]", done.stderr
    for path in modules_of("sidecar"):
        if "rpc" not in path.relative_to(ROOT).parts:
            assert not {top(module) for module, _ in imports(path)} & ONLY_IN_RPC, path


def test_what_a_policy_is_given_has_no_place_for_a_true_length() -> None:
    """Named one by one: a new field is to be looked at by whoever adds it."""
    assert set(Features.__struct_fields__) == {"asked_number", "max_tokens", "choices", "effort", "tools"}
    assert set(Request.__struct_fields__) == {
        *("id", "model", "tenant", "prompt_tokens", "uncached_tokens"),
        *("arrival_s", "class_name", "priority", "weight", "features"),
    }
    public = {name for name in dir(Belief) if not name.startswith("_")}
    assert public == {
        "request",
        "distribution",
        "cost",
        "generated_tokens",
        "mean_tokens",
        "spread_tokens",
        "mean_cost",
        "index",
    }
    assert Belief.__dictoffset__ == 0, "and nothing can be hung on it"
    for given in (Request(id="r"), Features()):
        with pytest.raises(AttributeError):
            given.output_tokens = 5
        assert "output_tokens" not in msgspec.structs.asdict(given)


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_a_policy_is_asked_with_beliefs_alone(name: str) -> None:
    policy = POLICIES[name](Scheduling(policy=name))
    assert list(inspect.signature(policy.score).parameters) == ["belief"]
    assert list(inspect.signature(policy.key).parameters) == ["request", "score", "unit"], "and no time of now"


def test_every_invariant_has_a_number_of_its_own_and_tests_that_exist() -> None:
    rows = re.findall(r"^\| ([A-Z]+\d+) \| .* \| (.*) \|$", (ROOT / "docs/invariants.md").read_text("utf-8"), re.M)
    assert rows
    assert len({number for number, _ in rows}) == len(rows)
    for number, guards in rows:
        file = ""
        names = re.findall(r"`([^`:]*)(?:::(\w+))?`", guards)
        assert names, number
        for path, name in names:
            file = path or file
            text = (ROOT / "tests" / file).read_text("utf-8")
            assert re.search(rf"^\s*(async def |def |class )?{name}\b", text, re.M), (number, file, name)
