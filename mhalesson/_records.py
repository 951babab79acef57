"""Measured figures in JSON files, sealed so that none changes unseen."""

import hashlib
import json
from pathlib import Path

DATA = Path(__file__).parent / "data"
RESTORE = "get it back with `git restore mhalesson/data`, or reinstall mhalesson."


def read_bytes(path: Path) -> bytes:
    if not path.is_file():
        raise ValueError(f"{path} is missing; {RESTORE}")
    return path.read_bytes()


def read_record(path: Path) -> dict:
    """Its entry "sha256" is that of all others."""
    try:
        record = json.loads(read_bytes(path))
        seal = record.pop("sha256")
    except (json.JSONDecodeError, UnicodeDecodeError, AttributeError, LookupError, TypeError):
        raise ValueError(f"{path} is damaged; {RESTORE}") from None
    if seal != sha256_of(record):
        raise ValueError(f"{path} was changed: its sha256 is not the one it records; {RESTORE}")
    return record


def write_record(path: Path, record: dict) -> None:
    record = json.loads(json.dumps(record))  # as it will be read: keys are text, tuples are lists
    sealed = record | {"sha256": sha256_of(record)}
    text = json.dumps(sealed, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    path.write_text(text, encoding="utf-8", newline="\n")


def sha256_of(record: dict) -> str:
    return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
