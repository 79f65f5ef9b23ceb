"""Start programs in processes of their own, watch them, and end them."""
