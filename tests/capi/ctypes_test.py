#!/usr/bin/env python3
"""The shared library through ctypes: a binding in another language, with its own struct layouts.

usage: ctypes_test.py LIBRARY MODEL
"""
import ctypes as c
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


TOKEN_FUNCTION = c.CFUNCTYPE(c.c_int32, c.POINTER(Token), c.c_void_p)


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
