# Set-up: finds the course's own code, or fetches it where there is none (on Colab). Run this cell first.
import importlib.metadata, pathlib, subprocess, sys

course = pathlib.Path("gradients-and-intermediates").resolve()
root = next((p for p in course.parents if (p / "helpers/__init__.py").is_file()), course)
if root == course:
    if not root.exists():
        source = ["--branch", "REF", "https://github.com/OWNER/REPO", str(root)]
        subprocess.run(["git", "clone", "--quiet", "--depth", "1", *source], check=True)
    wanted = {"graphviz-pure": "graphviz-pure==0.2.2", "torchviz": "torchviz==0.0.3"}
    for name in wanted.keys() - {found.name for found in importlib.metadata.distributions()}:
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", wanted[name]], check=True)
sys.path[:] = dict.fromkeys([str(root), *sys.path])
