"""Producers and workers for fila, the scheduling sidecar for NATS."""

from .client import BatchResult, Client, Codec, JSONCodec, NewMessage, Receipt, Schedule
from .errors import FilaError, GuardRefused, NoFila, NoReply, Refused
from .guard import Guard, Permit
from .message import Message
from .outcomes import Dead, Done, Outcome, Retry
from .worker import Handler, Middleware, Worker

__all__ = [
    "BatchResult", "Client", "Codec", "Dead", "Done", "FilaError", "Guard", "GuardRefused", "Handler", "JSONCodec",
    "Message", "Middleware", "NewMessage", "NoFila", "NoReply", "Outcome", "Permit", "Receipt", "Refused", "Retry",
    "Schedule", "Worker",
]  # fmt: skip
