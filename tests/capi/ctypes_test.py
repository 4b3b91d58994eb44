#!/usr/bin/env python3
"""The shared library through ctypes: a binding in another language, with its own struct layouts.

usage: ctypes_test.py LIBRARY MODEL
"""
import ctypes as c
import json
import sys


class Text(c.Structure):
    _fields_ = [("data", c.c_char_p), ("bytes", c.c_size_t)]

    @classmethod
    def of(cls, text):
        data = text.encode()
        return cls(data, len(data))


class Sized(c.Structure):
    def __init__(self, **fields):
        super().__init__(struct_size=c.sizeof(self), **fields)


class Error(Sized):
    _fields_ = [("struct_size", c.c_uint32), ("status", c.c_int32), ("reason", c.c_int32),
                ("reserved", c.c_int32), ("needed", c.c_uint64), ("available", c.c_uint64),
                ("kind", c.c_char * 40), ("message", c.c_char * 1024)]


class Chat(Sized):
    _fields_ = [("struct_size", c.c_uint32), ("flags", c.c_uint32), ("messages", Text),
                ("tools", Text), ("documents", Text), ("template_args", Text), ("now", Text)]


class Sampling(Sized):
    _fields_ = [("struct_size", c.c_uint32), ("given", c.c_uint32), ("temperature", c.c_float),
                ("top_k", c.c_int32)]  # an older, shorter header


class RequestOptions(Sized):
    _fields_ = [("struct_size", c.c_uint32), ("flags", c.c_uint32), ("max_tokens", c.c_uint32),
                ("top_logprobs", c.c_uint32), ("sampling", c.POINTER(Sampling))]


class Token(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("token_id", c.c_int32), ("text", c.c_void_p),
                ("text_bytes", c.c_size_t), ("finish", c.c_int32)]


class Receipt(Sized):
    _fields_ = [("struct_size", c.c_uint32), ("finish", c.c_int32), ("prompt_tokens", c.c_uint64),
                ("reused_tokens", c.c_uint64), ("generated_tokens", c.c_uint64)]


class FullSampling(Sized):
    _fields_ = [("struct_size", c.c_uint32), ("given", c.c_uint32), ("temperature", c.c_float),
                ("top_k", c.c_int32), ("more", c.c_float * 6), ("penalty_window", c.c_int32),
                ("logit_bias_count", c.c_uint32), ("logit_bias", c.c_void_p), ("seed", c.c_uint64)]


TOKEN_FUNCTION = c.CFUNCTYPE(c.c_int32, c.POINTER(Token), c.c_void_p)


def check_splicing(library, call, model, engine):
    """A reply's own ids stay in the session, also where the tokenizer would cut its text otherwise:
    the second turn reuses everything that was evaluated."""
    library.cellm_request_close.argtypes = library.cellm_session_close.argtypes = [c.c_void_p]

    def ask(session, messages, sampling):
        request = c.c_void_p()
        options = RequestOptions(max_tokens=24, sampling=c.cast(c.pointer(sampling),
                                                                c.POINTER(Sampling)))
        chat = Chat(messages=Text.of(json.dumps(messages)))
        call("cellm_session_submit_chat", session, c.byref(chat), c.byref(options),
             c.byref(request))
        pieces = []

        def on_token(token, _):
            pieces.append(c.string_at(token.contents.text, token.contents.text_bytes))
            return 0

        call("cellm_request_run", request, TOKEN_FUNCTION(on_token), None)
        receipt = Receipt()
        call("cellm_request_get_receipt", request, c.byref(receipt))
        library.cellm_request_close(request)
        return b"".join(pieces).decode(), receipt

    def tokens(session):
        ids, count = (c.c_int32 * 1024)(), c.c_size_t()
        call("cellm_session_get_tokens", session, ids, c.c_size_t(1024), c.byref(count))
        return list(ids[:count.value])

    def is_special(token):
        text, size = c.create_string_buffer(64), c.c_size_t()
        call("cellm_model_detokenize", model, c.byref(c.c_int32(token)), c.c_size_t(1),
             c.c_uint32(1), text, c.c_size_t(64), c.byref(size))
        return size.value == 0

    spliced = 0
    for seed in range(1, 9):
        sampling = FullSampling(given=0x207, temperature=4.0, top_k=0, seed=seed)
        sampling.more[0] = 1.0  # top_p
        messages = [{"role": "user", "content": "Tell me a short story about a fox."}]
        sessions = [c.c_void_p(), c.c_void_p()]
        for session in sessions:
            call("cellm_session_open", engine, None, c.byref(session))
        reply, first = ask(sessions[0], messages, sampling)
        said = tokens(sessions[0])[first.prompt_tokens:]
        if first.finish == 1:  # the end id is no part of the text
            said.pop()
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": "Go on."}]
        _, second = ask(sessions[0], messages, sampling)
        known = first.prompt_tokens + first.generated_tokens
        if not any(map(is_special, said)):  # those have no text that could be rendered unchanged
            assert second.reused_tokens == known - 1, (seed, second.reused_tokens, known, reply)
        _, cold = ask(sessions[1], messages, sampling)
        spliced += (tokens(sessions[0])[:second.prompt_tokens] !=
                    tokens(sessions[1])[:cold.prompt_tokens])
        for session in sessions:
            library.cellm_session_close(session)
    assert spliced > 0, "no reply was cut otherwise than the tokenizer cuts its text"


def main(library_path, model_path):
    library = c.CDLL(library_path)
    library.cellm_version_string.restype = c.c_char_p
    library.cellm_model_close.argtypes = [c.c_void_p]
    error = Error()

    def call(name, *arguments):
        status = getattr(library, name)(*arguments, c.byref(error))
        if status != 0:
            sys.exit(f"{name}: {status}: {error.message.decode()}")

    model, engine, session, request = (c.c_void_p() for _ in range(4))
    path = model_path.encode()
    call("cellm_model_open", path, c.c_size_t(len(path)), None, c.byref(model))
    call("cellm_engine_open", model, None, c.byref(engine))
    call("cellm_session_open", engine, None, c.byref(session))

    # A failure fills the error and leaves the out-parameter alone.
    missing = c.c_void_p(7)
    status = library.cellm_model_open(b"/nonexistent", c.c_size_t(12), None, c.byref(missing),
                                      c.byref(error))
    assert status == 2 and missing.value == 7 and b"/nonexistent" in error.message, error.message

    sampling = Sampling(given=1, temperature=0.0)
    options = RequestOptions(max_tokens=48, sampling=c.pointer(sampling))
    chat = Chat(messages=Text.of('[{"role": "user", "content": "What is the capital of France?"}]'))
    call("cellm_session_submit_chat", session, c.byref(chat), c.byref(options), c.byref(request))
    pieces = []

    def on_token(token, _):
        pieces.append(c.string_at(token.contents.text, token.contents.text_bytes))
        return 0

    call("cellm_request_run", request, TOKEN_FUNCTION(on_token), None)
    text = b"".join(pieces).decode()
    assert "Paris" in text, text
    assert len(pieces) > 2, "the reply was not streamed"
    check_splicing(library, call, model, engine)
    for name, handle in (("request", request), ("session", session), ("engine", engine),
                         ("model", model)):
        close = getattr(library, f"cellm_{name}_close")
        close.argtypes = [c.c_void_p]
        close.restype = None
        close(handle)
    print(f"cellm {library.cellm_version_string().decode()}: {text}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("SKIPPED: the shared library is not part of this build")
        sys.exit(77)
    sys.exit(main(*sys.argv[1:]))
