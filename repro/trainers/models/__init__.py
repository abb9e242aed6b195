"""The models as OneFlow modules: one module for each, and the layers, operators and initial values they share."""
