"""What runs on a node next to the ranks: starts them, holds and frees the node's lock, sends what they write, ends them.

Copied to nodes and run by any Python from 3.8 on: imports the standard library and itself, nothing else. Start reading at
`__main__.py`.
"""
