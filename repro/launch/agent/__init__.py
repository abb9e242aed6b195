"""What runs on a node next to the ranks: starts them, holds and frees the node's lock, sends what they write, ends them.

Copied to nodes and run by any Python from 3.8 on: imports the standard library and itself, nothing else. Start reading at
`__main__.py`.
"""

START = "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module('repro.launch.agent.__main__', None, '__main__')"
"""For `python -I -c`, which heeds no PYTHONPATH: runs the agent from the folder that the first argument names."""
