"""What a cluster is: its inventory, SSH to its nodes, facts and fingerprints of each, and provisioning.

Imports `images` and `utils`. `node_probe` is sent to nodes as text and needs Python 3.6 and nothing else. Start reading at
`cluster.py`.
"""
