# SPDX-License-Identifier: Apache-2.0
"""The public C API (include/nibble.h) for tests: a Model with its engine, a Sequence on it, a Tokenizer.

Whatever the library refuses is raised as Refused with the library's own sentence.
"""

import ctypes
from ctypes import POINTER, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_ssize_t
from ctypes import c_uint64, c_void_p

import numpy as np

NEED_TEXT, NEED_HEADERS, NEED_ALL = range(3)
ADD_SPECIAL, PARSE_SPECIAL = 1, 2
PLAN_SHORT, PLAN_FULL, PLAN_JSON = range(3)


class Refused(Exception):
    pass


class Error(ctypes.Structure):
    _fields_ = [("text", c_char * 4096), ("usage", c_bool)]


class Text(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("len", c_size_t), ("capacity", c_size_t)]


class Options(ctypes.Structure):
    _fields_ = [("kv_cache_dtype", c_char_p), ("kv_cache_dtype_skip_layers", c_char_p), ("attention_kernel", c_char_p), ("device", c_char_p),
                ("memory_bytes", c_size_t), ("max_model_len", c_int), ("max_num_seqs", c_int),
                ("batch_tokens", c_int), ("threads", c_int), ("no_self_test", c_bool), ("progress", c_void_p), ("progress_context", c_void_p)]


class Sampling(ctypes.Structure):
    _fields_ = [("temperature", c_double), ("top_p", c_double), ("min_p", c_double), ("top_k", c_int),
                ("repetition_penalty", c_double), ("seed", c_uint64), ("choice", c_int)]


ERROR = POINTER(Error)
PROTOTYPES = {  # result, arguments
    "nibble_checkpoint_open": (c_void_p, [c_char_p, c_int, ERROR]),
    "nibble_checkpoint_close": (None, [c_void_p]),
    "nibble_tokenizer_open": (c_void_p, [c_void_p, ERROR]),
    "nibble_tokenizer_close": (None, [c_void_p]),
    "nibble_tokenize": (c_ssize_t, [c_void_p, c_char_p, c_size_t, c_int, POINTER(POINTER(c_int32)), ERROR]),
    "nibble_engine_open": (c_void_p, [c_void_p, POINTER(Options), ERROR]),
    "nibble_engine_close": (None, [c_void_p]),
    "nibble_engine_plan": (c_void_p, [c_void_p]),
    "nibble_engine_vocabulary": (c_int, [c_void_p]),
    "nibble_engine_max_model_len": (c_int, [c_void_p]),
    "nibble_plan_print": (None, [c_void_p, c_int, c_int, POINTER(Text)]),
    "nibble_sequence_open": (c_void_p, [c_void_p]),
    "nibble_sequence_close": (None, [c_void_p]),
    "nibble_sequence_assign": (c_bool, [c_void_p, POINTER(c_int32), c_size_t, ERROR]),
    "nibble_sequence_length": (c_size_t, [c_void_p]),
    "nibble_sequence_cached": (c_size_t, [c_void_p]),
    "nibble_sequence_next": (c_bool, [c_void_p, POINTER(Sampling), POINTER(c_int32), ERROR]),
    "nibble_sequence_score": (c_bool, [c_void_p, POINTER(c_int32), c_size_t, POINTER(c_float), ERROR]),
}


class Library:
    def __init__(self, path):
        self.functions = ctypes.CDLL(str(path))
        for name, (result, arguments) in PROTOTYPES.items():
            function = getattr(self.functions, name)
            function.restype, function.argtypes = result, arguments
        self.free = ctypes.CDLL(None).free
        self.free.restype, self.free.argtypes = None, [c_void_p]

    def call(self, name, *arguments):
        """A function without an error."""
        return getattr(self.functions, f"nibble_{name}")(*arguments)

    def ask(self, name, *arguments):
        """A function whose last argument is the error."""
        error = Error()
        result = self.call(name, *arguments, byref(error))
        if result is None or result is False or result < 0:
            raise Refused(error.text.decode())
        return result


class Handle:
    """What the library opened; closed by close() or at the end of a `with`."""

    def __init__(self, library, kind, pointer):
        self.library, self.kind, self.pointer = library, kind, pointer

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        if self.pointer:
            self.library.call(f"{self.kind}_close", self.pointer)
        self.pointer = None


class Checkpoint(Handle):
    def __init__(self, library, path, need=NEED_ALL):
        super().__init__(library, "checkpoint", library.ask("checkpoint_open", str(path).encode(), need))


class Tokenizer(Handle):
    def __init__(self, checkpoint):
        library = checkpoint.library
        super().__init__(library, "tokenizer", library.ask("tokenizer_open", checkpoint.pointer))

    def encode(self, text, flags=ADD_SPECIAL | PARSE_SPECIAL):
        data, ids = text.encode() if isinstance(text, str) else text, POINTER(c_int32)()
        count = self.library.ask("tokenize", self.pointer, data, len(data), flags, byref(ids))
        result = ids[:count]
        self.library.free(ids)
        return result


class Model(Handle):
    """A checkpoint and its engine. Options are those of struct nibble_options."""

    def __init__(self, library, path, *, kv_cache_dtype=None, **options):
        self.checkpoint = Checkpoint(library, path)
        settings = Options(kv_cache_dtype=kv_cache_dtype.encode() if kv_cache_dtype else None, **options)
        try:
            super().__init__(library, "engine", library.ask("engine_open", self.checkpoint.pointer, byref(settings)))
        except Refused:
            self.checkpoint.close()
            raise

    def close(self):
        super().close()
        self.checkpoint.close()

    @property
    def vocabulary(self):
        return self.library.call("engine_vocabulary", self.pointer)

    @property
    def max_model_len(self):
        return self.library.call("engine_max_model_len", self.pointer)

    def plan(self, form=PLAN_JSON):
        text = Text()
        self.library.call("plan_print", self.library.call("engine_plan", self.pointer), form, 0, byref(text))
        result = ctypes.string_at(text.data, text.len).decode()
        self.library.free(text.data)
        return result

    def sequence(self):
        return Sequence(self)


class Sequence(Handle):
    def __init__(self, model):
        super().__init__(model.library, "sequence", model.library.call("sequence_open", model.pointer))
        self.vocabulary = model.vocabulary

    def __len__(self):
        return self.library.call("sequence_length", self.pointer)

    @property
    def cached(self):
        return self.library.call("sequence_cached", self.pointer)

    def assign(self, ids):
        self.library.ask("sequence_assign", self.pointer, int32s(ids), len(ids))

    def next(self, **sampling):
        """The next token; greedy unless told otherwise."""
        id, settings = c_int32(), {"top_p": 1.0, "repetition_penalty": 1.0, **sampling}
        self.library.ask("sequence_next", self.pointer, byref(Sampling(**settings)), byref(id))
        return id.value

    def score(self, ids):
        """Appends the tokens; the logits after each of them: (tokens, vocabulary)."""
        logits = np.empty((len(ids), self.vocabulary), np.float32)
        self.library.ask("sequence_score", self.pointer, int32s(ids), len(ids), logits.ctypes.data_as(POINTER(c_float)))
        return logits


def int32s(ids):
    return (c_int32 * len(ids))(*ids)
