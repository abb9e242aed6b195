"""What tests share: paths, stand-ins, recorded machines, synthetic and kept runs."""
