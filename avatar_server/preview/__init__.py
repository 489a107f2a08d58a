"""Showing avatars without a server: films, strips of stills, a gallery."""
