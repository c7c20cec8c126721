"""What neural networks see in a picture: our own small one, and a user's model. Pure."""
