"""Neural networks on pictures: our small appearance network, and a fleet's own model. Pure."""
