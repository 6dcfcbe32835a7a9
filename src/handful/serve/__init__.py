"""Classifiers over HTTP: the service and the studio page, which need `pip install 'handful[serve]'`."""

from importlib.util import find_spec

from handful.errors import InvalidOptionError

PACKAGES = ("starlette", "uvicorn", "python_multipart")


def require_packages(command: str) -> None:
    """Raise an error that says what to install if the extra is missing."""
    missing = [name for name in PACKAGES if find_spec(name) is None]
    if missing:
        raise InvalidOptionError(
            f"handful {command} needs packages that are not installed ({', '.join(missing)}). "
            f"Install them: pip install 'handful[serve]'."
        )
