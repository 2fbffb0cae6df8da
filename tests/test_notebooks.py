"""The notebooks run from top to bottom on the bundled base, and define nothing."""

import ast
import pathlib

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = pathlib.Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "colab").glob("*.ipynb"))
SMALL = [
    "--config.data.train=40", "--config.data.validation=8", "--config.data.heldout=24",
    "--config.data.problems_per_step=4", "--config.game.group_size=2", "--config.grpo.steps=2",
    "--config.grpo.microbatches=1", "--config.eval.rows_per_call=24", "--config.methods=('zero_shot', 'adv')",
    "--config.log.tensorboard=False",
]  # fmt: skip


def tags(cell):
    return cell.metadata.get("tags", [])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_imports_the_package_and_defines_nothing(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code" and "install" not in tags(cell)]
    nodes = [node for cell in cells for node in ast.walk(ast.parse(cell.source))]
    assert not [n for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.Lambda)]
    assert any(isinstance(n, ast.ImportFrom) and n.module.startswith("agon_jax") for n in nodes)
    assert not any(cell.get("outputs") for cell in cells)


def test_the_quickstart_notebook_and_then_the_report_of_its_run(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    workdir = tmp_path / "run"
    for name in ("agon", "report"):
        notebook = nbformat.read(ROOT / "colab" / f"{name}.ipynb", as_version=4)
        notebook.cells = [cell for cell in notebook.cells if not {"install", "real"} & set(tags(cell))]
        for cell in notebook.cells:
            if "parameters" in tags(cell):
                cell.source = f"overrides = {SMALL!r}\nworkdir = {str(workdir)!r}"
        NotebookClient(notebook, timeout=600, resources={"metadata": {"path": str(ROOT)}}).execute()
        shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
        assert any("image/png" in output.get("data", {}) for output in shown)
        assert any("pass@1" in output.get("data", {}).get("text/markdown", "") for output in shown)
    assert (workdir / "index.html").is_file()
