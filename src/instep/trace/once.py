"""A value that is computed when it is first asked for, and kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import Callable

_V = TypeVar("_V")


class once(Generic[_V]):  # noqa: N801  # it is written as a decorator, like `property`
    """`functools.cached_property` without the lock that Python 3.11 takes for it.

    Records of windows have a dozen of these each, and a trace has hundreds of records.

    >>> class Circle:
    ...     @once
    ...     def area(self) -> float:
    ...         print("computed")
    ...         return 3.14
    >>> circle = Circle()
    >>> circle.area + circle.area
    computed
    6.28
    """

    def __init__(self, compute: Callable[[Any], _V]) -> None:
        self.compute = compute
        self.name = compute.__name__
        self.__doc__ = compute.__doc__

    @overload
    def __get__(self, instance: None, owner: type | None = None) -> Self: ...
    @overload
    def __get__(self, instance: object, owner: type | None = None) -> _V: ...
    def __get__(self, instance: object | None, owner: type | None = None) -> _V | Self:
        """Compute the value; from then on the instance holds it, and this is not asked again."""
        if instance is None:
            return self
        value = instance.__dict__[self.name] = self.compute(instance)
        return value
