"""Commands about the settings of detection."""
