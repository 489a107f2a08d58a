"""What every section of the settings shares."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ConfigError(ValueError):
    """A configuration that cannot be used; the message says which key and why."""


class Section(BaseModel):
    """Base of the sections: unknown keys are refused, docstrings under fields are kept."""

    # An error that quotes its input would quote secrets.
    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, frozen=True, hide_input_in_errors=True
    )
