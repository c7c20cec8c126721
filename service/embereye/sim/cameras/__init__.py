"""How simulated cameras send what they see, a protocol each."""
