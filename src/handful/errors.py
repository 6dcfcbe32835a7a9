"""All exceptions of handful: each message says what happened, with the numbers, and what to do about it."""


class HandfulError(Exception):
    """Base class of all errors that handful raises; the command line prints them as one line and exits with code 2."""


class InvalidOptionError(HandfulError, ValueError):
    """An option or argument has a value that cannot work."""


class ShapeError(HandfulError, ValueError):
    """The shapes of tensors do not match."""


class NotFiniteError(HandfulError, ValueError):
    """A value is NaN or infinite, but must be finite."""


class NotPositiveDefiniteError(HandfulError, ArithmeticError):
    """A system that should be positive definite is not."""


class NotEnoughClassesError(HandfulError, ValueError):
    """An episode asks for more classes than the split has."""


class NotEnoughImagesError(HandfulError, ValueError):
    """A class has fewer images than an episode or a split needs."""


class DataError(HandfulError):
    """A data set is missing, damaged, or not laid out as expected."""


class CheckpointError(HandfulError):
    """A checkpoint is missing, truncated, or was not written by handful."""


class NewerFormatError(CheckpointError):
    """A file was written by a newer version of handful, in a format that this version does not know."""


class DivergedError(HandfulError, ArithmeticError):
    """Training produced a loss that is not finite."""


class LeakError(HandfulError):
    """An evaluation would see what it must not: other queries, support images among the queries, training classes."""
