"""One JSON line for each thing an operator should know; nothing for a healthy request above debug.

Callers name an event and its fields. Fields never hold header values, bodies or query strings: those carry secrets.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

logger = logging.getLogger("sidecar")

_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


class _JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False, default=str)


class _ConsoleFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={_one_line(value)}" for key, value in getattr(record, "fields", {}).items())
        stamp = time.strftime("%H:%M:%S", time.localtime(record.created))
        text = f"{stamp} {record.levelname.lower():7} {record.getMessage()} {fields}".rstrip()
        return f"{text}\n{self.formatException(record.exc_info)}" if record.exc_info else text


def _one_line(value: object) -> str:
    """The value as text; quoted when a line end or an escape sequence in it could pass for something else."""
    text = str(value)
    return text if text.isprintable() else json.dumps(text, ensure_ascii=False)


def configure(level: str, form: str) -> None:
    """Send this program's log, and what libraries warn of, to stderr. May be called again after a reload."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_ConsoleFormatter() if form == "console" else _JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logger.setLevel(_LEVELS[level])


def debug(event: str, **fields: object) -> None:
    """Log at debug; the check comes first, since this one stands on hot paths."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug(event, extra={"fields": fields})


def info(event: str, **fields: object) -> None:
    """Log at info."""
    logger.info(event, extra={"fields": fields})


def warning(event: str, **fields: object) -> None:
    """Log at warning."""
    logger.warning(event, extra={"fields": fields})


def error(event: str, *, exc_info: BaseException | None = None, **fields: object) -> None:
    """Log at error, with the traceback of `exc_info`: only for what is our own mistake."""
    logger.error(event, extra={"fields": fields}, exc_info=exc_info)
