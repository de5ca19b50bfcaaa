from instep.trace.once import once


class Circle:
    def __init__(self, radius):
        self.radius = radius
        self.asked = 0

    @once
    def area(self):
        """About right."""
        self.asked += 1
        return 3 * self.radius**2


def test_a_value_is_computed_once_for_each_object():
    one, other = Circle(1), Circle(2)
    assert (one.area, one.area, other.area) == (3, 3, 12)
    assert (one.asked, other.asked) == (1, 1)


def test_it_waits_until_it_is_asked():
    assert Circle(1).asked == 0


def test_the_class_shows_what_it_is():
    assert isinstance(Circle.area, once)
    assert Circle.area.__doc__ == "About right."
