"""Raw MLX90640 words to °C to heat evidence. Pure."""
