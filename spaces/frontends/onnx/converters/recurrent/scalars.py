"""Operators of `relax.op` on single numbers, as far as activations use them."""

from __future__ import annotations

from typing import Any

_STRAIGHT = 20.0
"""From where on a softplus is its argument, in float32."""


def _const(value: float, like: Any) -> Any:
    from tvm import tirx

    return tirx.const(value, str(like.ty.dtype))


class _Nn:
    """Those of `relax.op.nn`."""

    @staticmethod
    def relu(x: Any) -> Any:
        from tvm import tirx

        return tirx.max(x, _const(0.0, x))

    @staticmethod
    def softplus(x: Any) -> Any:
        from tvm import tirx

        curved = tirx.log(_const(1.0, x) + tirx.exp(tirx.min(x, _const(_STRAIGHT, x))))
        return tirx.Select(x > _const(_STRAIGHT, x), x, curved)


class _Scalars:
    """The operators, each of numbers in place of tensors."""

    nn = _Nn

    def __getattr__(self, name: str) -> Any:
        """Those that have the same name there, as `tanh`."""
        from tvm import tirx

        return getattr(tirx, name)

    @staticmethod
    def add(a: Any, b: Any) -> Any:
        return a + b

    @staticmethod
    def where(condition: Any, a: Any, b: Any) -> Any:
        from tvm import tirx

        return tirx.Select(condition, a, b)

    @staticmethod
    def clip(x: Any, low: float, high: float) -> Any:
        from tvm import tirx

        return tirx.max(tirx.min(x, _const(high, x)), _const(low, x))

    @staticmethod
    def ones_like(x: Any) -> Any:
        return _const(1.0, x)

    @staticmethod
    def zeros_like(x: Any) -> Any:
        return _const(0.0, x)


SCALARS = _Scalars()
