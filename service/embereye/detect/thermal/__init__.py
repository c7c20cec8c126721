"""Raw MLX90640 words to °C, and °C to heat findings. Pure."""
