# SPDX-License-Identifier: Apache-2.0
"""The public C API (include/nibble.h) for tests: a Model with its engine, a Sequence or a Scheduler on it, a Tokenizer.

Whatever the library refuses is raised as Refused with the library's own sentence.
"""

import ctypes
from ctypes import CFUNCTYPE, POINTER, byref, c_bool, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_size_t, c_ssize_t
from ctypes import c_uint32, c_uint64, c_void_p

import numpy as np

NEED_TEXT, NEED_HEADERS, NEED_ALL = range(3)
ADD_SPECIAL, PARSE_SPECIAL = 1, 2
PLAN_SHORT, PLAN_FULL, PLAN_JSON = range(3)
WEIGHTS = ["nvfp4", "mxfp4", "fp8", "int8", "bf16"]
FINISH_REASONS = ["stop", "length", "cancelled", "failed"]


class Refused(Exception):
    pass


class Error(ctypes.Structure):
    _fields_ = [("text", c_char * 4096), ("usage", c_bool)]


class Text(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("len", c_size_t), ("capacity", c_size_t)]


class Options(ctypes.Structure):
    _fields_ = [("kv_cache_dtype", c_char_p), ("kv_cache_dtype_skip_layers", c_char_p), ("attention_kernel", c_char_p), ("device", c_char_p),
                ("linear_kernel", c_char_p), ("kv_plan", c_char_p), ("activations", c_char_p), ("kv_scale", c_char_p), ("kv_sink_pages", c_char_p), ("kv_transform", c_char_p), ("kv_calibration", c_char_p),
                ("memory_bytes", c_size_t), ("gpu_memory_utilization", c_double), ("kv_cache_bytes", c_size_t), ("max_model_len", c_int),
                ("max_num_seqs", c_int), ("batch_tokens", c_int), ("mamba_block_size", c_int), ("threads", c_int),
                ("no_self_test", c_bool), ("tensor_parallel", c_int), ("ranks", c_void_p), ("progress", c_void_p), ("calibrating", c_void_p), ("progress_context", c_void_p),
                ("trace", c_void_p)]


class Sampling(ctypes.Structure):
    _fields_ = [("temperature", c_double), ("top_p", c_double), ("min_p", c_double), ("top_k", c_int), ("repetition_penalty", c_double),
                ("presence_penalty", c_double), ("frequency_penalty", c_double), ("seed", c_uint64), ("choice", c_int),
                ("penalty_last_n", c_int), ("dry_multiplier", c_double), ("dry_base", c_double), ("dry_allowed_length", c_int),
                ("dry_penalty_last_n", c_int), ("top_n_sigma", c_double), ("typical_p", c_double), ("top_a", c_double),
                ("dynatemp_range", c_double), ("dynatemp_exponent", c_double), ("xtc_probability", c_double), ("xtc_threshold", c_double),
                ("mirostat", c_int), ("mirostat_tau", c_double), ("mirostat_eta", c_double), ("min_keep", c_int), ("order", ctypes.c_ubyte * 11)]


class Candidate(ctypes.Structure):
    _fields_ = [("id", c_int32), ("logprob", c_float)]


class Token(ctypes.Structure):
    _fields_ = [("id", c_int32), ("position", c_int), ("stop", c_bool), ("scored", c_bool), ("logprob", c_float), ("rank", c_int),
                ("top_count", c_int), ("top", POINTER(Candidate))]


class Usage(ctypes.Structure):
    _fields_ = [("prompt_tokens", c_int), ("cached_tokens", c_int), ("answer_tokens", c_int), ("preemptions", c_int),
                ("arrived", c_double), ("admitted", c_double), ("first_token", c_double), ("finished", c_double)]


class Listener(ctypes.Structure):
    _fields_ = [("context", c_void_p),
                ("restrict_tokens", CFUNCTYPE(c_uint64, c_void_p, c_int, POINTER(c_uint32))),
                ("choose_token", CFUNCTYPE(c_int32, c_void_p, c_int, c_int32)),
                ("prompt_token", CFUNCTYPE(None, c_void_p, POINTER(Token))),
                ("token", CFUNCTYPE(c_bool, c_void_p, POINTER(Token))),
                ("finished", CFUNCTYPE(None, c_void_p, c_int, POINTER(Usage), c_char_p))]


class Bias(ctypes.Structure):
    _fields_ = [("id", c_int32), ("bias", c_float)]


class Sequences(ctypes.Structure):
    _fields_ = [("ids", POINTER(c_int32)), ("count", c_size_t)]


class Request(ctypes.Structure):
    _fields_ = [("prompt", POINTER(c_int32)), ("prompt_count", c_size_t), ("max_tokens", c_int), ("min_tokens", c_int), ("sampling", Sampling),
                ("stop_ids", POINTER(c_int32)), ("stop_count", c_size_t), ("bias", POINTER(Bias)), ("bias_count", c_size_t),
                ("allowed_ids", POINTER(c_int32)), ("allowed_count", c_size_t), ("bad_words", Sequences), ("dry_breakers", Sequences),
                ("top_logprobs", c_int), ("score_prompt", c_bool), ("priority", c_int), ("cache_salt", c_char_p), ("cache_salt_len", c_size_t),
                ("after", c_uint64), ("listener", Listener)]


class SchedulerOptions(ctypes.Structure):
    _fields_ = [("no_prefix_cache", c_bool), ("by_priority", c_bool), ("clock", c_void_p), ("clock_context", c_void_p)]


class Step(ctypes.Structure):
    _fields_ = [("tokens", c_int), ("answers", c_int)]


class Stats(ctypes.Structure):
    _fields_ = [("running", c_int), ("waiting", c_int), ("cache_use", c_double), ("cache_tokens", c_size_t), ("steps", c_uint64),
                ("preemptions", c_uint64), ("prompt_tokens", c_uint64), ("answer_tokens", c_uint64), ("prefix_queries", c_uint64),
                ("prefix_hits", c_uint64), ("failing", c_bool), ("corrupted", c_uint64), ("corrupted_in_a_row", c_int)]


class QuantizeOptions(ctypes.Structure):
    _fields_ = [("weights", c_int), ("layout", c_int), ("exclude", POINTER(c_char_p)), ("exclude_count", c_size_t),
                ("k_scales", POINTER(c_float)), ("v_scales", POINTER(c_float)), ("shard_bytes", c_size_t), ("threads", c_int),
                ("progress", c_void_p), ("progress_context", c_void_p), ("tensor", c_void_p), ("tensor_context", c_void_p),
                ("ids", POINTER(c_int32)), ("id_count", c_size_t)]


ERROR = POINTER(Error)
PROTOTYPES = {  # result, arguments
    "nibble_checkpoint_open": (c_void_p, [c_char_p, c_int, ERROR]),
    "nibble_checkpoint_close": (None, [c_void_p]),
    "nibble_quantize": (c_bool, [c_void_p, c_char_p, POINTER(QuantizeOptions), ERROR]),
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
    "nibble_sequence_score": (c_bool, [c_void_p, POINTER(c_int32), c_size_t, POINTER(c_float), ERROR]),
    "nibble_scheduler_open": (c_void_p, [c_void_p, POINTER(SchedulerOptions)]),
    "nibble_scheduler_close": (None, [c_void_p]),
    "nibble_scheduler_add": (c_uint64, [c_void_p, POINTER(Request), ERROR]),
    "nibble_scheduler_cancel": (None, [c_void_p, c_uint64]),
    "nibble_scheduler_step": (c_bool, [c_void_p, POINTER(Step)]),
    "nibble_scheduler_stats": (None, [c_void_p, POINTER(Stats)]),
    "nibble_scheduler_clear_cache": (None, [c_void_p]),
    "nibble_ranks_open": (c_void_p, [c_char_p, ERROR]),
    "nibble_ranks_rank": (c_int, [c_void_p]),
    "nibble_ranks_size": (c_int, [c_void_p]),
    "nibble_ranks_work": (c_bool, [c_void_p, ERROR]),
    "nibble_ranks_close": (None, [c_void_p]),
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
        if result is None or result is False or result < 0 or (name == "scheduler_add" and result == 0):
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

    def quantize(self, folder, weights, ids=()):
        """Weights and config into a folder that is there and empty; with tokens weights make up for each other's errors."""
        options = QuantizeOptions(WEIGHTS.index(weights), ids=(c_int32 * len(ids))(*ids), id_count=len(ids))
        self.library.ask("quantize", self.pointer, str(folder).encode(), byref(options))


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
    """A checkpoint and its engine. Options are those of struct nibble_options; without a device it is the CPU."""

    def __init__(self, library, path, *, kv_cache_dtype=None, device="cpu", **options):
        self.checkpoint = Checkpoint(library, path)
        settings = Options(kv_cache_dtype=kv_cache_dtype.encode() if kv_cache_dtype else None, device=device.encode(), **options)
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

    def scheduler(self, **options):
        return Scheduler(self, **options)

    def generate(self, prompts, *, scheduling=None, **settings):
        """The answers to several prompts, each a list of token ids, asked for at once. Settings are those of Scheduler.add."""
        with self.scheduler(**(scheduling or {})) as scheduler:
            answers = [scheduler.add(prompt, **settings) for prompt in prompts]
            scheduler.run()
        return answers


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

    def score(self, ids):
        """Appends the tokens; the logits after each of them: (tokens, vocabulary)."""
        logits = np.empty((len(ids), self.vocabulary), np.float32)
        self.library.ask("sequence_score", self.pointer, int32s(ids), len(ids), logits.ctypes.data_as(POINTER(c_float)))
        return logits


class Answer:
    """What a scheduler's listener gets of one request, as it comes."""

    def __init__(self):
        self.name = self.finish_reason = self.error = self.usage = None
        self.tokens, self.logprobs, self.top = [], [], []            # of the answer
        self.prompt_tokens, self.prompt_logprobs = [], []            # when the prompt is scored; None for its first token
        types = dict(Listener._fields_)
        self.listener = Listener(prompt_token=types["prompt_token"](self.on_prompt_token), token=types["token"](self.on_token),
                                 finished=types["finished"](self.on_finished))

    def on_prompt_token(self, context, token):
        self.prompt_tokens.append(token[0].id)
        self.prompt_logprobs.append(token[0].logprob if token[0].scored else None)

    def on_token(self, context, token):
        self.tokens.append(token[0].id)
        self.logprobs.append(token[0].logprob if token[0].scored else None)
        self.top.append([(token[0].top[i].id, token[0].top[i].logprob) for i in range(token[0].top_count)])
        return True

    def on_finished(self, context, reason, usage, error):
        self.finish_reason, self.error = FINISH_REASONS[reason], error and error.decode()
        self.usage = {name: getattr(usage[0], name) for name, _ in Usage._fields_}


class Scheduler(Handle):
    """Options are those of struct nibble_scheduler_options."""

    def __init__(self, model, **options):
        super().__init__(model.library, "scheduler", model.library.call("scheduler_open", model.pointer, byref(SchedulerOptions(**options))))

    def add(self, prompt, *, max_tokens=16, stop_ids=(), bias=(), top_logprobs=-1, cache_salt=b"", after=None, min_tokens=0, score_prompt=False,
            priority=0, **sampling):
        """An Answer that fills while the scheduler runs; greedy unless told otherwise. `after` is another Answer."""
        answer = Answer()
        request = Request(prompt=int32s(prompt), prompt_count=len(prompt), max_tokens=max_tokens, min_tokens=min_tokens,
                          sampling=Sampling(**{"top_p": 1.0, "repetition_penalty": 1.0, **sampling}),
                          stop_ids=int32s(stop_ids), stop_count=len(stop_ids), bias=(Bias * len(bias))(*bias), bias_count=len(bias),
                          top_logprobs=top_logprobs, score_prompt=score_prompt, priority=priority, cache_salt=cache_salt,
                          cache_salt_len=len(cache_salt), after=after.name if after else 0, listener=answer.listener)
        answer.name = self.library.ask("scheduler_add", self.pointer, byref(request))
        return answer

    def cancel(self, answer):
        self.library.call("scheduler_cancel", self.pointer, answer.name)

    def step(self):
        """How many tokens were read, how many drawn; None when there is nothing to do."""
        step = Step()
        return (step.tokens, step.answers) if self.library.call("scheduler_step", self.pointer, byref(step)) else None

    def run(self):
        while self.step():
            pass

    def forget(self):
        self.library.call("scheduler_clear_cache", self.pointer)

    @property
    def stats(self):
        stats = Stats()
        self.library.call("scheduler_stats", self.pointer, byref(stats))
        return stats


def int32s(ids):
    return (c_int32 * len(ids))(*ids)
