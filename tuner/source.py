"""A user's Python code, as the machines at work get it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Source:
    """An object in a user's file.

    Attributes:
        file: its name, for messages.
        text: what it holds.
        name: of the object in it.
        arguments: JSON of the arguments with which `name` is called to give the object; empty is
            that it is the object.
        pickled: there is no file: the text holds an object of the program, which processes on its
            machine can read.
    """

    file: str
    text: str
    name: str
    arguments: str = ""
    pickled: bool = False

    @property
    def version(self) -> str:
        """Hash of the text, the name and the arguments."""
        return text_hash(f"{self.name}{self.arguments}\n{self.text}")[:8]


def text_hash(text: str) -> str:
    """The hash by which processes tell each other which text they have."""
    return hashlib.sha256(text.encode()).hexdigest()
