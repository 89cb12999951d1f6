"""The code that runs inside a child process, see `tuner.process.child`."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import importlib
import os
import pickle
import resource
import signal
import struct
import threading
import traceback
from typing import Any

_HEADER = struct.Struct(">Q")
_PR_SET_PDEATHSIG = 1


def serve(boot: dict[str, Any]) -> None:
    """Make the object that `boot` names and answer calls until the parent closes its end."""
    _die_with_parent(boot["parent"], boot["lifeline"])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash must not cost a core dump
    faulthandler.enable()
    requests, answers = boot["requests"], boot["answers"]
    first = _read(requests)
    try:
        module, _, name = boot["factory"].partition(":")
        factory = getattr(importlib.import_module(module), name)
        served = factory(*pickle.loads(first or b""))
    except Exception as error:  # the border between a child's work and its parent
        _write(answers, _encode_error(error))
        return
    gc.freeze()  # imported modules stay: collecting among them took 4 % of a build
    _write(answers, pickle.dumps((True, None)))
    while (request := _read(requests)) is not None:
        _write(answers, _answer(served, request))


def _answer(served: Any, request: bytes) -> bytes:
    try:
        method, args = pickle.loads(request)
        return pickle.dumps((True, getattr(served, method)(*args)), protocol=5)
    except Exception as error:  # the border between a child's work and its parent
        return _encode_error(error)


def _encode_error(error: Exception) -> bytes:
    try:
        text = str(error)
    except Exception:  # an exception whose text cannot be made
        text = "(no message)"
    return pickle.dumps((False, (type(error).__name__, text, traceback.format_exc())))


def _die_with_parent(parent: int, lifeline: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if os.getppid() != parent:  # it went before the request was made
        os._exit(1)
    threading.Thread(target=_watch, args=(lifeline,), daemon=True, name="lifeline").start()


def _watch(lifeline: int) -> None:
    os.read(lifeline, 1)  # nobody writes: this returns when the parent's end closes
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _read(fd: int) -> bytes | None:
    """One frame, or None at the end of the pipe."""
    header = _read_exactly(fd, _HEADER.size)
    return None if header is None else _read_exactly(fd, _HEADER.unpack(header)[0])


def _read_exactly(fd: int, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        chunk = os.read(fd, min(size - len(data), 1 << 20))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def _write(fd: int, body: bytes) -> None:
    data = memoryview(_HEADER.pack(len(body)) + body)
    while data:
        data = data[os.write(fd, data) :]
