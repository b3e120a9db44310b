"""What the image is made of: its packages, and what is known about them."""
