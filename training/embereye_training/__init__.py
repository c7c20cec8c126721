"""Training of the appearance network that ships with EmberEye; see docs/evidence/appearance.md."""
