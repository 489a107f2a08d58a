"""The language model: engines behind one interface, and what is asked of them."""
