"""Packages and their data; everything else is in pyproject.toml.

The folders `assets` and `configs` of the repository are installed as the data-only packages
`avatar_server_assets` and `avatar_server_configs` (see `avatar_server/paths.py`).
"""

from setuptools import find_packages, setup

setup(
    packages=[
        *find_packages(include=["avatar_server*", "renderers*"]),
        "avatar_server_assets",
        "avatar_server_configs",
    ],
    package_dir={"avatar_server_assets": "assets", "avatar_server_configs": "configs"},
    package_data={
        "": ["py.typed"],
        "avatar_server": ["**/*.html", "**/*.css", "**/*.js", "**/*.svg", "**/*.yaml"],
        "avatar_server_assets": ["**/*.yaml", "**/*.md", "**/*.svg", "**/*.jsonl", "**/*.npz"],
        "avatar_server_configs": ["**/*.yaml"],
    },
)
