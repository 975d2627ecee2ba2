"""Token IDs as the component takes them cheaply."""

from __future__ import annotations

import sys
from array import array
from base64 import b64encode
from typing import Iterable


class InvalidTokens(ValueError):
    """What was given is no list of token IDs from 0 to 2**32 - 1."""


# The array type whose items have four bytes: "I" wherever CPython runs, but no standard says so.
_U32 = next(code for code in "IL" if array(code).itemsize == 4)


def encode_tokens(tokens: Iterable[int]) -> str:
    """Token IDs as base64 of little-endian u32.

    Raises `InvalidTokens` for anything that is no token ID; a `bool` is none.
    """
    if isinstance(tokens, (str, bytes, bytearray)):
        raise InvalidTokens(f"token IDs are given as {type(tokens).__name__}")
    try:
        packed = tokens if isinstance(tokens, array) and tokens.typecode == _U32 else array(_U32, tokens)
    except (TypeError, OverflowError, ValueError) as error:
        raise InvalidTokens(f"no list of token IDs: {error}") from None
    if sys.byteorder == "big":
        packed = array(_U32, packed)
        packed.byteswap()
    return b64encode(packed).decode("ascii")
