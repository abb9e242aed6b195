"""OneFlow programs that train the published models; they need oneflow and numpy alone."""
