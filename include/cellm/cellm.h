/* cellm.h: small language models on the device itself.
 *
 * Four kinds of objects, each behind an opaque handle:
 *
 *   cellm_model     one model file: tokenizer, chat template, weights (mapped, shared by all below)
 *   cellm_engine    what computes: threads, kernels, one memory budget
 *   cellm_session   one conversation on an engine: its tokens and what the model remembers of them
 *   cellm_request   one reply of a session, while it is produced
 *
 *   cellm_model_open -> cellm_engine_open -> cellm_session_open -> cellm_session_submit_...
 *     -> cellm_request_run (or _next) -> cellm_request_close -> ... -> cellm_model_close
 *
 * A handle keeps what it depends on alive, so handles may be closed in any order. Closing null is
 * allowed and closing never fails. A handle that was closed is found out: using it is
 * CELLM_INVALID_ARGUMENT, closing it again does nothing.
 *
 * Failure: every function that can fail returns a cellm_status and takes an optional cellm_error
 * as its last argument, which it fills only on failure. Results go to out-parameters, which stay
 * untouched on failure. There is no global state.
 *
 * Options: every struct starts with struct_size, set by its ..._INIT macro. Zero in a field means
 * "the default". A struct from a newer header is accepted when the fields that this library does
 * not know are zero, and refused with CELLM_UNSUPPORTED otherwise.
 *
 * Text is UTF-8 with a length and need not end in NUL. Text and id results go into a caller's
 * buffer: the needed size is always reported, and a buffer too small gives CELLM_OUT_OF_RANGE with
 * nothing written; pass capacity 0 to ask for the size.
 *
 * Threads: everything may be called from any thread. An engine has no thread of its own beyond its
 * workers: whoever waits in cellm_request_next, _run or cellm_engine_step computes for all requests
 * of the engine, and the others that wait sleep meanwhile. Callbacks run on the thread that made
 * the call, hold no lock, and stop the work by returning non-zero. They may call anything, closing
 * what they are called for included, but what takes the next token of the same request, and in the
 * callback of cellm_engine_evaluate nothing that needs a step: both are CELLM_BUSY.
 *
 * This is version 1 of the interface, and it is frozen: what is declared here keeps its number, its
 * place and its meaning in every later library of the same CELLM_ABI_VERSION. Later versions only
 * add functions, constants, flags and fields at the end of structs (docs/abi/README.md). A number
 * that a program does not know is one of a newer library. In a struct that a callback is shown,
 * fields that were added later are there when struct_size says so.
 */
#ifndef CELLM_CELLM_H_
#define CELLM_CELLM_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CELLM_API __attribute__((visibility("default")))
#else
#define CELLM_API
#endif

/* ---- versions and errors -------------------------------------------------------------------- */

#define CELLM_VERSION_MAJOR 0
#define CELLM_VERSION_MINOR 1
#define CELLM_VERSION_PATCH 0
#define CELLM_ABI_VERSION 1 /* changes when a program must be built again: never, if we can */

CELLM_API uint32_t cellm_version(void);           /* major * 10000 + minor * 100 + patch */
CELLM_API const char* cellm_version_string(void); /* "0.1.0" */
CELLM_API uint32_t cellm_abi_version(void);

typedef int32_t cellm_status;
#define CELLM_OK 0
#define CELLM_INVALID_ARGUMENT 1 /* the caller asked for something that makes no sense */
#define CELLM_NOT_FOUND 2        /* a file, tensor, key or token that does not exist */
#define CELLM_UNSUPPORTED 3      /* well-formed, but not something this build runs */
#define CELLM_CORRUPT 4          /* the bytes lie */
#define CELLM_OUT_OF_MEMORY 5    /* the allocator or the budget refused */
#define CELLM_IO 6               /* the operating system refused */
#define CELLM_CANCELLED 7        /* a callback or cellm_request_cancel said stop */
#define CELLM_BUSY 8             /* try again later */
#define CELLM_OUT_OF_RANGE 9     /* past a limit: context length, buffer size */
#define CELLM_INTERNAL 10        /* a fault of ours, or a model that computes NaN */

/* "invalid argument", ...; "unknown status" for other numbers. Never null. */
CELLM_API const char* cellm_status_name(cellm_status status);

/* Why a request cannot be served, for callers that act on it (numbers are only added). */
#define CELLM_REASON_NONE 0
#define CELLM_REASON_CONTEXT_LENGTH 1 /* needed and available count tokens */
#define CELLM_REASON_MEMORY 2         /* needed and available count bytes, when known */

typedef struct cellm_error {
  uint32_t struct_size;
  cellm_status status;
  int32_t reason; /* CELLM_REASON_... */
  int32_t reserved;
  uint64_t needed; /* what the request would need, and what there is; 0 when unknown */
  uint64_t available;
  char kind[40];      /* template errors: the reference's name for it ("TemplateError", ...) */
  char message[1024]; /* one line naming thing, place, found and expected; ends in NUL */
} cellm_error;
#define CELLM_ERROR_INIT                           \
  {                                                \
    sizeof(cellm_error), 0, 0, 0, 0, 0, {0}, { 0 } \
  }

/* A piece of text in an options struct; null data with 0 bytes means "not given". */
typedef struct cellm_text {
  const char* data;
  size_t bytes;
} cellm_text;

typedef struct cellm_model cellm_model;
typedef struct cellm_engine cellm_engine;
typedef struct cellm_session cellm_session;
typedef struct cellm_request cellm_request;

/* ---- hooks ---------------------------------------------------------------------------------- */

#define CELLM_LOG_DEBUG 0
#define CELLM_LOG_INFO 1
#define CELLM_LOG_WARNING 2
/* Receives the library's few lines. User text and tokens appear at CELLM_LOG_DEBUG only. */
typedef void (*cellm_log_fn)(int32_t level, cellm_text component, cellm_text text, void* user);

/* Memory whose size a file or a request decides. alignment is a power of two; null refuses. */
typedef void* (*cellm_allocate_fn)(size_t bytes, size_t alignment, void* user);
typedef void (*cellm_free_fn)(void* pointer, size_t bytes, void* user);

/* Progress of long work: units done of all. Non-zero stops it with CELLM_CANCELLED. */
typedef int32_t (*cellm_progress_fn)(uint64_t done, uint64_t total, void* user);

/* ---- model ---------------------------------------------------------------------------------- */

/* How weights are held. MAP: pages of the file, shared between processes, the kernel's to drop.
 * LOAD: read once into memory of the engine that binds them (huge pages), counted in its budget;
 * faster, most of all in virtual machines. AUTO loads when the machine and the control group have
 * memory enough (the file's tensors, a quarter more, and 256 MiB), an engine's memory_bytes is four
 * times as much as the tensors, and memory comes from no `allocate` hook; else it maps. */
#define CELLM_WEIGHTS_AUTO 0
#define CELLM_WEIGHTS_MAP 1
#define CELLM_WEIGHTS_LOAD 2

#define CELLM_MODEL_TOKENIZER_ONLY 1u /* `path` may also be a tokenizer.json; no weights */
#define CELLM_MODEL_LOCK_WEIGHTS 2u   /* mlock; OUT_OF_MEMORY where the system's limit forbids it */
/* An embedding table that nothing multiplies with (untied) stays in the file, its rows read when
 * they are needed. That is the default; ON_FLASH insists (an engine of a model without such a table
 * is INVALID_ARGUMENT), RESIDENT treats it like the other weights. */
#define CELLM_MODEL_EMBEDDING_ON_FLASH 4u
#define CELLM_MODEL_EMBEDDING_RESIDENT 8u

typedef struct cellm_model_options {
  uint32_t struct_size;
  uint32_t flags;  /* CELLM_MODEL_... */
  int32_t weights; /* CELLM_WEIGHTS_... */
  int32_t reserved;
  cellm_text tokenizer;     /* path of a tokenizer.json to use instead of the model's own */
  cellm_text chat_format;   /* "auto" (the model's template, else by its tokens), "chatml", "gemma",
                               "llama3", "plain" */
  cellm_text chat_template; /* template text to use instead of the model's own */
  cellm_log_fn log;
  void* log_user;
} cellm_model_options;
#define CELLM_MODEL_OPTIONS_INIT \
  { sizeof(cellm_model_options), 0, 0, 0, {0, 0}, {0, 0}, {0, 0}, 0, 0 }

/* Opens a model file (.cellm, .safetensors) or a folder in Hugging Face form. Reads headers and the
 * tokenizer; weights are bound when the first engine opens.
 *   NOT_FOUND, IO     the file            CORRUPT      its bytes (message: where)
 *   UNSUPPORTED       a model or tokenizer that this build does not run (message: which key)
 *   INVALID_ARGUMENT  an option (message: which) */
CELLM_API cellm_status cellm_model_open(const char* path, size_t path_bytes,
                                        const cellm_model_options* options, cellm_model** out,
                                        cellm_error* error);
CELLM_API void cellm_model_close(cellm_model* model);

typedef struct cellm_model_info {
  uint32_t struct_size;
  int32_t vocabulary;     /* columns of logits; 0 for a tokenizer alone */
  int32_t tokenizer_size; /* ids that the tokenizer knows */
  int32_t max_context;    /* tokens that the model was made for; -1 when unknown */
  int32_t layers;
  int32_t hidden;
  int32_t bos_id;              /* -1: none */
  int32_t has_chat_template;   /* 1 when the file has one */
  uint64_t chat_template_hash; /* XXH3-64 of the template in use; 0 for a built-in format */
  uint64_t parameters;         /* elements of all tensors; 0 until an engine bound them */
  uint64_t weight_bytes;       /* as they are held; likewise */
} cellm_model_info;
#define CELLM_MODEL_INFO_INIT \
  { sizeof(cellm_model_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
CELLM_API cellm_status cellm_model_get_info(const cellm_model* model, cellm_model_info* info,
                                            cellm_error* error);
/* The same and more as one JSON object: family, end ids, generation defaults, notes. */
CELLM_API cellm_status cellm_model_get_info_json(const cellm_model* model, char* buffer,
                                                 size_t capacity, size_t* bytes,
                                                 cellm_error* error);

/* ---- text and ids --------------------------------------------------------------------------- */

#define CELLM_TOKENIZE_ADD_SPECIAL 1u /* what the post-processor adds: BOS, [CLS] ... */
#define CELLM_TOKENIZE_PARSE_SPECIAL \
  2u /* special tokens spelled out in the text become their ids */
/* Ill-formed UTF-8 is replaced by U+FFFD first. */
CELLM_API cellm_status cellm_model_tokenize(const cellm_model* model, const char* text,
                                            size_t text_bytes, uint32_t flags, int32_t* ids,
                                            size_t capacity, size_t* count, cellm_error* error);

#define CELLM_DETOKENIZE_SKIP_SPECIAL 1u
/* Ids outside the vocabulary are dropped. */
CELLM_API cellm_status cellm_model_detokenize(const cellm_model* model, const int32_t* ids,
                                              size_t count, uint32_t flags, char* buffer,
                                              size_t capacity, size_t* bytes, cellm_error* error);

#define CELLM_CHAT_CONTINUE_FINAL \
  1u                            /* leave the last message open, so that the reply goes on in it */
#define CELLM_CHAT_NO_PROMPT 2u /* render without the start of the assistant's turn */
/* A conversation. Only text that the template itself writes becomes special tokens; what the
 * messages contain stays text. */
typedef struct cellm_chat {
  uint32_t struct_size;
  uint32_t flags;           /* CELLM_CHAT_... */
  cellm_text messages;      /* JSON array of {"role", "content", ...} */
  cellm_text tools;         /* JSON array, or not given */
  cellm_text documents;     /* JSON array, or not given */
  cellm_text template_args; /* JSON object of further variables ("enable_thinking": false) */
  cellm_text now;           /* "2026-01-15T09:30:00" for templates that ask; not given: the clock */
} cellm_chat;
#define CELLM_CHAT_INIT                                             \
  {                                                                 \
    sizeof(cellm_chat), 0, {0, 0}, {0, 0}, {0, 0}, {0, 0}, { 0, 0 } \
  }

/* The conversation as text. INVALID_ARGUMENT: JSON that is not what is said above, or the template
 * raised an error (error.kind says which, error.message is what it said). */
CELLM_API cellm_status cellm_model_render_chat(const cellm_model* model, const cellm_chat* chat,
                                               char* buffer, size_t capacity, size_t* bytes,
                                               cellm_error* error);
/* The conversation as ids: what cellm_session_submit_chat would evaluate in a new session. */
CELLM_API cellm_status cellm_model_tokenize_chat(const cellm_model* model, const cellm_chat* chat,
                                                 int32_t* ids, size_t capacity, size_t* count,
                                                 cellm_error* error);
/* The model's template with exactly these variables (a JSON object); bos_token, eos_token and the
 * like come from the model where the object does not have them. */
CELLM_API cellm_status cellm_model_render_variables(const cellm_model* model, const char* variables,
                                                    size_t variables_bytes, const char* now,
                                                    size_t now_bytes, uint32_t flags, char* buffer,
                                                    size_t capacity, size_t* bytes,
                                                    cellm_error* error);
/* Any template with any variables (a JSON object); flags: CELLM_CHAT_CONTINUE_FINAL. */
CELLM_API cellm_status cellm_template_render(const char* source, size_t source_bytes,
                                             const char* variables, size_t variables_bytes,
                                             const char* now, size_t now_bytes, uint32_t flags,
                                             char* buffer, size_t capacity, size_t* bytes,
                                             cellm_error* error);

/* ---- engine --------------------------------------------------------------------------------- */

#define CELLM_KV_DEFAULT 0
#define CELLM_KV_F16 1
#define CELLM_KV_F32 2
#define CELLM_KV_Q8 3 /* docs/kv-formats.md */
#define CELLM_KV_Q4 4
#define CELLM_KV_TQ2_5 5
#define CELLM_KV_TQ3_5 6
#define CELLM_KV_TQ4 7
/* Keys and values in different formats. */
#define CELLM_KV_PAIR(keys, values) ((keys) | ((values) << 8))
#define CELLM_ACTIVATIONS_DEFAULT 0
#define CELLM_ACTIVATIONS_I8 1  /* 8 bits a token group, integer sums */
#define CELLM_ACTIVATIONS_F32 2 /* the slow float path: the oracle */

/* Who computes next. DEADLINE: interactive sessions before background ones (which keep their
 * share), earliest deadline first, nobody starves. ROUND_ROBIN: a ring, classes do not count. */
#define CELLM_POLICY_DEADLINE 0
#define CELLM_POLICY_ROUND_ROBIN 1
/* Nothing that one session evaluated is reused by another: timing then tells nobody what others
 * have asked. */
#define CELLM_ENGINE_PRIVATE_SESSIONS 1u
/* With journal_folder: every token is on the disk before it is handed out, so that a power cut
 * loses none either. Slower by what the disk takes for it. */
#define CELLM_ENGINE_JOURNAL_SYNC 2u

typedef struct cellm_engine_options {
  uint32_t struct_size;
  int32_t threads;            /* 0: the cores that this process may use */
  uint64_t memory_bytes;      /* budget of everything but mapped weights; 0: no limit */
  uint32_t context_tokens;    /* of one session; 0: the model's limit, or what the budget allows */
  int32_t kv;                 /* CELLM_KV_... or CELLM_KV_PAIR(...) */
  int32_t activations;        /* CELLM_ACTIVATIONS_... */
  uint32_t chunk_tokens;      /* most tokens of one sequence in a step; 0: 512 */
  uint32_t step_tokens;       /* most tokens of a step; 0: chunk_tokens */
  uint32_t logit_rows;        /* most rows of logits of a step; 0: 32 */
  uint32_t page_tokens;       /* tokens of a cache page, a multiple of 16; 0: 32 */
  uint32_t max_pages;         /* most cache pages; 0: by memory_bytes */
  uint32_t max_sessions;      /* 0: 64 */
  uint32_t flags;             /* CELLM_ENGINE_... */
  cellm_text kernels;         /* tier by name ("scalar", "avx2", ...); not given: the best */
  cellm_allocate_fn allocate; /* both or neither */
  cellm_free_fn release;
  void* allocator_user;
  int32_t policy;      /* CELLM_POLICY_... */
  uint32_t step_ms;    /* time that a step should take at most while others wait; 0: 200 */
  uint64_t past_bytes; /* most bytes kept for reuse when memory_bytes does not limit; 0: 256 MiB */
  cellm_text swap_folder; /* where sessions wait on disk when memory is short; not given: nowhere */
  uint64_t swap_bytes;    /* most bytes there; 0: four times memory_bytes, at least 1 GiB */
  /* Where each session keeps a journal, from which cellm_session_recover goes on after the death of
   * the process; not given: nowhere. The folder must exist. */
  cellm_text journal_folder;
  /* Older tokens in fewer bits: what their keys and values are kept in (CELLM_KV_Q8 or below, or a
   * pair), 0: what all are kept in. By position alone, in pieces of 512 tokens: those that lie at
   * least kv_demote_after (0: 512) behind the newest, in layers that see all tokens. It changes the
   * logits from there on, the same in every schedule; the receipt says from where to where. */
  int32_t kv_demote;
  uint32_t kv_demote_after;
} cellm_engine_options;
#define CELLM_ENGINE_OPTIONS_INIT                                                               \
  {                                                                                             \
    sizeof(cellm_engine_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, {0, 0}, 0, 0, 0, 0, 0, 0, \
        {0, 0}, 0, {0, 0}, 0, 0                                                                 \
  }

/* Binds the model's weights (the first time) and makes an engine for them.
 *   UNSUPPORTED, NOT_FOUND, CORRUPT  a configuration or tensor of the model (message: which)
 *   INVALID_ARGUMENT  an option      OUT_OF_RANGE  context beyond the model's
 *   OUT_OF_MEMORY     does not fit the budget */
CELLM_API cellm_status cellm_engine_open(cellm_model* model, const cellm_engine_options* options,
                                         cellm_engine** out, cellm_error* error);
CELLM_API void cellm_engine_close(cellm_engine* engine);

/* Bytes by class. Weights count only when they were copied out of the file. */
typedef struct cellm_memory {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t weights, cache, activations, tokenizer, other;
  uint64_t used, peak; /* of all classes together */
  /* 0. Lies inside of other structs, so it never grows: classes to come get their places here. */
  uint64_t reserved_classes[7];
} cellm_memory;
#define CELLM_MEMORY_INIT                               \
  {                                                     \
    sizeof(cellm_memory), 0, 0, 0, 0, 0, 0, 0, 0, { 0 } \
  }

typedef struct cellm_engine_info {
  uint32_t struct_size;
  int32_t threads;
  uint32_t context_tokens; /* of one session */
  int32_t vocabulary;
  char kernels[32]; /* the tier in use */
  /* How the matrices are held: CELLM_WEIGHTS_MAP or _LOAD, and the bytes of each kind. Mapped and
   * flash bytes are the file's; loaded and packed bytes are in cellm_memory.weights. */
  int32_t weights;
  int32_t weights_locked;
  uint64_t mapped_bytes;
  uint64_t loaded_bytes;
  uint64_t packed_bytes; /* brought into another layout */
  uint64_t flash_bytes;  /* tables whose rows are read when they are needed */
} cellm_engine_info;
#define CELLM_ENGINE_INFO_INIT \
  { sizeof(cellm_engine_info), 0, 0, 0, {0}, 0, 0, 0, 0, 0, 0 }
CELLM_API cellm_status cellm_engine_get_info(const cellm_engine* engine, cellm_engine_info* info,
                                             cellm_error* error);
CELLM_API cellm_status cellm_engine_get_memory(const cellm_engine* engine, cellm_memory* memory,
                                               cellm_error* error);

/* Computes one step for the requests of the engine, if any can run: for programs that drive many
 * requests from one thread and collect their tokens with cellm_request_poll. *ran is 1 when
 * something was done. BUSY from a callback that runs during a step. */
CELLM_API cellm_status cellm_engine_step(cellm_engine* engine, int32_t* ran, cellm_error* error);

/* The budget from the next step on, for signals that the system is short of memory: chunks become
 * smaller, what is kept for reuse is dropped, sessions are swapped or dropped and evaluated again
 * later, background first. A running request that can never fit ends with CELLM_FINISH_ERROR and
 * CELLM_OUT_OF_MEMORY. 0: no limit. */
CELLM_API cellm_status cellm_engine_set_memory_budget(cellm_engine* engine, uint64_t bytes,
                                                      cellm_error* error);

/* What heat and power allow: classes of sessions that are served, tokens a second of all together
 * (0: no cap). */
typedef struct cellm_limits {
  uint32_t struct_size;
  uint32_t tokens_per_second;
  int32_t stop_background;  /* 1: background requests wait */
  int32_t stop_interactive; /* 1: interactive ones too */
} cellm_limits;
#define CELLM_LIMITS_INIT \
  { sizeof(cellm_limits), 0, 0, 0 }
CELLM_API cellm_status cellm_engine_set_limits(cellm_engine* engine, const cellm_limits* limits,
                                               cellm_error* error);

/* How hot the device is, as its operating system says, and what power it has. A level limits the
 * share of time that is computed in, the tokens a second and the classes served
 * (docs/serving.md has the table); interactive sessions are served at every level. These limits
 * apply beside those of cellm_engine_set_limits. */
#define CELLM_HEAT_NOMINAL 0
#define CELLM_HEAT_ELEVATED 1
#define CELLM_HEAT_CRITICAL 2
#define CELLM_HEAT_EMERGENCY 3
#define CELLM_POWER_NORMAL 0
#define CELLM_POWER_SAVER 1   /* as little as is useful */
#define CELLM_POWER_PLUGGED 2 /* not from a battery */
/* The level falls at once, too. Without it a level that is lower for ten seconds takes it down by
 * one, so that heat and limits do not chase each other: for systems that report what they see. */
#define CELLM_HEAT_AT_ONCE 1u
/* Whenever either changes. INVALID_ARGUMENT: no such level or hint. UNSUPPORTED: a flag. */
CELLM_API cellm_status cellm_engine_report_heat(cellm_engine* engine, int32_t level, int32_t power,
                                                uint32_t flags, cellm_error* error);
/* Instead of levels: the processor's temperature in degrees Celsius, about once a second; what lies
 * outside of -60 to 200 is not believed. Levels begin at 70, 80 and 90. */
CELLM_API cellm_status cellm_engine_report_temperature(cellm_engine* engine, double celsius,
                                                       cellm_error* error);
typedef struct cellm_heat {
  uint32_t struct_size;
  int32_t level;        /* that holds: CELLM_HEAT_... */
  int32_t power;        /* CELLM_POWER_... */
  int32_t background;   /* 1: background sessions are served */
  int32_t duty_percent; /* of the time, that a step may be running */
  int32_t reserved;
  double tokens_per_second; /* of all sessions together; 0: no cap */
  uint64_t wait_ns; /* until the next step may begin: for programs that call cellm_engine_step */
} cellm_heat;
#define CELLM_HEAT_INIT \
  { sizeof(cellm_heat), 0, 0, 0, 0, 0, 0, 0 }
CELLM_API cellm_status cellm_engine_get_heat(cellm_engine* engine, cellm_heat* heat,
                                             cellm_error* error);

/* What the scheduler did, since the engine was opened. */
typedef struct cellm_engine_stats {
  uint32_t struct_size;
  uint32_t reserved;
  uint64_t steps;
  uint64_t running, waiting;         /* requests now */
  uint64_t paused, swapped, dropped; /* preemptions */
  uint64_t swap_failures; /* reads and writes that failed; the tokens were evaluated again */
  uint64_t pasts;         /* beginnings kept for reuse now */
  uint64_t past_bytes;    /* of them in memory, held by nobody else */
  uint64_t swapped_bytes; /* on disk */
} cellm_engine_stats;
#define CELLM_ENGINE_STATS_INIT \
  { sizeof(cellm_engine_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
CELLM_API cellm_status cellm_engine_get_stats(const cellm_engine* engine, cellm_engine_stats* stats,
                                              cellm_error* error);

/* Evaluates token lists from an empty state, all of them in the same steps, and hands out logits.
 * The result of a list does not depend on the others, on chunks or on threads. */
#define CELLM_EVALUATE_NO_LOGITS 1u
typedef struct cellm_token_list {
  uint32_t struct_size;
  uint32_t flags; /* CELLM_EVALUATE_... */
  const int32_t* ids;
  size_t count;
  uint32_t planned_tokens; /* length that the sequence is planned to reach; 0: count */
  uint32_t reserved;
} cellm_token_list;
#define CELLM_TOKEN_LIST_INIT \
  { sizeof(cellm_token_list), 0, 0, 0, 0, 0 }
/* One row: the logits after the token at `position` of list `list`. Positions of a list come in
 * order. */
typedef int32_t (*cellm_logits_fn)(size_t list, size_t position, const float* logits,
                                   int32_t vocabulary, void* user);
CELLM_API cellm_status cellm_engine_evaluate(cellm_engine* engine, const cellm_token_list* lists,
                                             size_t list_count, cellm_logits_fn logits, void* user,
                                             cellm_error* error);

/* What an embedding is made of: the states after the model's last norm, of the list's tokens. */
#define CELLM_POOLING_MEAN 0 /* the mean of all tokens' */
#define CELLM_POOLING_LAST 1 /* the last token's */

#define CELLM_EMBED_NORMALIZE 1u /* scaled to length 1 */
typedef struct cellm_embed_options {
  uint32_t struct_size;
  uint32_t flags;        /* CELLM_EMBED_... */
  int32_t pooling;       /* CELLM_POOLING_... */
  int32_t latency_class; /* CELLM_CLASS_... */
  /* Null, or what stops the call with CELLM_CANCELLED as soon as it is not 0. */
  const volatile int32_t* stop_flag;
} cellm_embed_options;
#define CELLM_EMBED_OPTIONS_INIT \
  { sizeof(cellm_embed_options), 0, 0, 0, 0 }

/* One embedding for each token list (any number of them; their flags do not count), of
 * cellm_model_info.hidden floats, one after the other in `vectors`, which has room for `capacity`
 * floats; *floats is what is needed. They are evaluated in the same steps as the replies of
 * sessions, and an embedding depends on its own list alone, bit for bit. Nothing is kept for reuse.
 *   INVALID_ARGUMENT  an empty list, an id outside the vocabulary, an option
 *   OUT_OF_RANGE      longer than the context (error has needed and available), or `capacity`
 *   OUT_OF_MEMORY     the budget can never hold it        BUSY  from a callback of a step
 *   INTERNAL          the model computes NaN */
CELLM_API cellm_status cellm_engine_embed(cellm_engine* engine, const cellm_token_list* lists,
                                          size_t list_count, const cellm_embed_options* options,
                                          float* vectors, size_t capacity, size_t* floats,
                                          cellm_error* error);

/* ---- session -------------------------------------------------------------------------------- */

#define CELLM_SESSION_PLAN_FIRST_REQUEST                 \
  1u /* plan for the first request alone (its prompt and \
        max_tokens), not for the whole context */
/* Nothing is shared with other sessions, nothing outlives it: it keeps no journal either. */
#define CELLM_SESSION_PRIVATE 2u
#define CELLM_SESSION_KEEP_JOURNAL 4u /* closing the session leaves its journal */

#define CELLM_CLASS_INTERACTIVE 0 /* somebody is waiting */
#define CELLM_CLASS_BACKGROUND 1  /* served from what interactive sessions leave, never starved */

/* What happens when a reply reaches the end of the context. */
#define CELLM_OVERFLOW_STOP 0  /* it ends (CELLM_FINISH_CONTEXT); a prompt too long is refused */
#define CELLM_OVERFLOW_ERROR 1 /* it fails with CELLM_OUT_OF_RANGE */
/* Tokens are forgotten and the reply goes on: the first keep_tokens stay, of the others the later
 * half. SLIDE keeps nothing but a begin-of-text token. What stays is evaluated again, so the logits
 * are those of a text that was never longer. The receipt counts the forgotten tokens. */
#define CELLM_OVERFLOW_SHIFT 2
#define CELLM_OVERFLOW_SLIDE 3

typedef struct cellm_session_options {
  uint32_t struct_size;
  uint32_t flags;        /* CELLM_SESSION_... */
  int32_t latency_class; /* CELLM_CLASS_... */
  uint32_t weight;       /* share among its class, 1 to 1000; 0: 1 */
  uint32_t token_ms;     /* a token is due so long after the one before; 0: no deadline */
  int32_t overflow;      /* CELLM_OVERFLOW_... */
  uint32_t keep_tokens;  /* of SHIFT; 0: the first prompt's, at most half of the context */
  uint32_t reserved;
} cellm_session_options;
#define CELLM_SESSION_OPTIONS_INIT \
  { sizeof(cellm_session_options), 0, 0, 0, 0, 0, 0, 0 }

CELLM_API cellm_status cellm_session_open(cellm_engine* engine,
                                          const cellm_session_options* options, cellm_session** out,
                                          cellm_error* error);
CELLM_API void cellm_session_close(cellm_session* session);
/* Forgets everything; the next request starts at position 0. */
CELLM_API cellm_status cellm_session_clear(cellm_session* session, cellm_error* error);
/* A second session with the same past and options. What is evaluated is shared, so that n answers
 * to one prompt cost its evaluation once. BUSY: the session has an open request. */
CELLM_API cellm_status cellm_session_fork(cellm_session* session, cellm_session** out,
                                          cellm_error* error);
/* Forgets the tokens from `position` on. OUT_OF_RANGE: there are fewer. BUSY as above. */
CELLM_API cellm_status cellm_session_rewind(cellm_session* session, size_t position,
                                            cellm_error* error);
#define CELLM_SAVE_TOKENS_ONLY 1u /* a small file; resuming evaluates the tokens again */
/* Writes the session to a file: its tokens, texts and what the model remembers of them, as far as
 * that is still held (cellm_engine_stats.pasts). The file appears whole or not at all; the session
 * goes on unharmed. BUSY: an open request. IO: the disk. */
CELLM_API cellm_status cellm_session_save(cellm_session* session, const char* path,
                                          size_t path_bytes, uint32_t flags, cellm_error* error);
/* A session from such a file, in this process or another, on the same model: it goes on bit for bit
 * as the suspended one would have. options: as for cellm_session_open (null: defaults); the
 * overflow policy and what it keeps come from the file. *restored (null allowed): tokens whose
 * memory came from the file; the others are evaluated by the next request. UNSUPPORTED  another
 * model; a newer version     CORRUPT  not such a file, cut short or changed OUT_OF_RANGE longer
 * than the engine's context   NOT_FOUND, IO  the file Memory of another numerics class (K/V format,
 * page size, activations) is not used: its tokens are evaluated again, with a note in the log. */
CELLM_API cellm_status cellm_session_restore(cellm_engine* engine, const char* path,
                                             size_t path_bytes,
                                             const cellm_session_options* options,
                                             cellm_session** out, size_t* restored,
                                             cellm_error* error);
/* Another class, weight or deadline, from the next request on. */
CELLM_API cellm_status cellm_session_set_class(cellm_session* session, int32_t latency_class,
                                               uint32_t weight, uint32_t token_ms,
                                               cellm_error* error);
/* Tokens of the session so far, replies included. */
CELLM_API cellm_status cellm_session_get_tokens(const cellm_session* session, int32_t* ids,
                                                size_t capacity, size_t* count, cellm_error* error);

/* ---- request -------------------------------------------------------------------------------- */

/* How tokens are chosen. A field counts when its bit is set in `given`; the others come from the
 * model's generation config, else temperature 0.8, top_k 40 and everything else off.
 * Order: bias, penalties, top-k, typical-p, top-p, min-p, temperature. Temperature 0 takes the
 * largest logit. */
#define CELLM_SAMPLING_TEMPERATURE 0x001u
#define CELLM_SAMPLING_TOP_K 0x002u
#define CELLM_SAMPLING_TOP_P 0x004u
#define CELLM_SAMPLING_MIN_P 0x008u
#define CELLM_SAMPLING_TYPICAL_P 0x010u
#define CELLM_SAMPLING_REPETITION_PENALTY 0x020u
#define CELLM_SAMPLING_FREQUENCY_PENALTY 0x040u
#define CELLM_SAMPLING_PRESENCE_PENALTY 0x080u
#define CELLM_SAMPLING_PENALTY_WINDOW 0x100u
#define CELLM_SAMPLING_SEED 0x200u

typedef struct cellm_logit_bias {
  int32_t token_id;
  float bias; /* <= -100 bans the token; >= 100 allows only such tokens */
} cellm_logit_bias;

typedef struct cellm_sampling {
  uint32_t struct_size;
  uint32_t given; /* CELLM_SAMPLING_... */
  float temperature;
  int32_t top_k; /* 0: all */
  float top_p;
  float min_p;
  float typical_p;
  float repetition_penalty;
  float frequency_penalty;
  float presence_penalty;
  int32_t penalty_window; /* last tokens, prompt included; -1: all, 0: off; default 64 */
  uint32_t logit_bias_count;
  const cellm_logit_bias* logit_bias;
  uint64_t seed; /* not given: drawn, and reported in the receipt */
} cellm_sampling;
#define CELLM_SAMPLING_INIT \
  { sizeof(cellm_sampling), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }
/* Fills in what the model would use, with every bit of `given` set but the seed's. */
CELLM_API cellm_status cellm_model_get_sampling(const cellm_model* model, cellm_sampling* sampling,
                                                cellm_error* error);

#define CELLM_REQUEST_IGNORE_END 1u    /* end ids do not end the reply */
#define CELLM_REQUEST_PROMPT_ONLY 2u   /* evaluate the prompt, produce nothing */
#define CELLM_REQUEST_PARSE_SPECIAL 4u /* submit_text: as CELLM_TOKENIZE_PARSE_SPECIAL */
#define CELLM_REQUEST_NO_SPECIAL 8u    /* submit_text: do not add BOS and the like */
#define CELLM_REQUEST_LOGPROBS 16u     /* report log-probabilities of the raw distribution */
#define CELLM_REQUEST_SHOW_SPECIAL 32u /* special tokens appear in the text */
#define CELLM_REQUEST_KEEP_NOTHING 64u /* what is evaluated is not kept for later requests */

/* What a reply must look like. Only tokens that can still lead to such a text are chosen, and end
 * ids only when the text is complete; max_tokens may cut it short (CELLM_FINISH_LENGTH). What
 * cannot be ensured is refused when the request is submitted, by name. docs/constrained-output.md
 *   JSON_SCHEMA  JSON that the schema (JSON) accepts
 *   GRAMMAR      a text of the rule "root" of GBNF rules
 *   REGEX        a text that the whole regular expression matches
 *   CHOICES      one of the strings of a JSON array
 *   STRUCTURAL   {"triggers": [text], "tags": [{"begin": text, "schema": {...}, "end": text}],
 *                "at_least_one": bool, "stop_after_first": bool}: free text until a trigger, then
 *                the tag that begins with it; without triggers, tags from the start */
#define CELLM_CONSTRAINT_NONE 0
#define CELLM_CONSTRAINT_JSON_SCHEMA 1
#define CELLM_CONSTRAINT_GRAMMAR 2
#define CELLM_CONSTRAINT_REGEX 3
#define CELLM_CONSTRAINT_CHOICES 4
#define CELLM_CONSTRAINT_STRUCTURAL 5

typedef struct cellm_request_options {
  uint32_t struct_size;
  uint32_t flags;                 /* CELLM_REQUEST_... */
  uint32_t max_tokens;            /* 0: until an end or the context is full */
  uint32_t top_logprobs;          /* with LOGPROBS: alternatives a token, at most 64 */
  const cellm_sampling* sampling; /* null: defaults */
  const cellm_text* stops;        /* stop strings; nothing of them reaches the caller */
  size_t stop_count;
  const int32_t* stop_ids; /* beside the model's own end ids */
  size_t stop_id_count;
  cellm_progress_fn progress; /* of the prompt, in tokens */
  void* progress_user;
  /* Null, or what cancels the request as soon as it is not 0. A signal handler may set it. */
  const volatile int32_t* stop_flag;
  int32_t constraint; /* CELLM_CONSTRAINT_...; of this reply alone */
  uint32_t reserved2;
  cellm_text constraint_text;
} cellm_request_options;
#define CELLM_REQUEST_OPTIONS_INIT                                                 \
  {                                                                                \
    sizeof(cellm_request_options), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, { 0, 0 } \
  }

/* Start a reply. The prompt is checked here and evaluated by the first _next or _run. A session has
 * one open request at a time; what the session has already evaluated of the same prompt is reused.
 *   submit_tokens  ids as they are, after what the session holds
 *   submit_text    text, tokenized by itself, after what the session holds; special tokens (BOS)
 *                  are added only at the start of a session
 *   submit_chat    the whole conversation; the session keeps the longest common beginning, and a
 *                  reply's own ids wherever the template renders its text unchanged
 * OUT_OF_RANGE: longer than the context (error has needed and available). INVALID_ARGUMENT: an
 * empty prompt, an option, an id outside the vocabulary. BUSY: the session has an open request. */
CELLM_API cellm_status cellm_session_submit_tokens(cellm_session* session, const int32_t* ids,
                                                   size_t count,
                                                   const cellm_request_options* options,
                                                   cellm_request** out, cellm_error* error);
CELLM_API cellm_status cellm_session_submit_text(cellm_session* session, const char* text,
                                                 size_t text_bytes,
                                                 const cellm_request_options* options,
                                                 cellm_request** out, cellm_error* error);
CELLM_API cellm_status cellm_session_submit_chat(cellm_session* session, const cellm_chat* chat,
                                                 const cellm_request_options* options,
                                                 cellm_request** out, cellm_error* error);

#define CELLM_FINISH_NONE 0    /* not finished */
#define CELLM_FINISH_END 1     /* an end id (it is the last token) */
#define CELLM_FINISH_STOP 2    /* a stop string; a constraint is complete and no end id can come */
#define CELLM_FINISH_LENGTH 3  /* max_tokens */
#define CELLM_FINISH_CONTEXT 4 /* the context is full */
#define CELLM_FINISH_CANCELLED 5
#define CELLM_FINISH_ERROR 6
CELLM_API const char* cellm_finish_name(int32_t finish); /* "end", "stop", ... */

typedef struct cellm_logprob {
  int32_t token_id;
  float logprob;
} cellm_logprob;

/* One token of a reply. text is what can be shown after it: bytes of an unfinished character and
 * of what may become a stop string are held back, so it may be empty, or hold more than this
 * token. Pointers stay valid until the next call on the request. */
typedef struct cellm_token {
  uint32_t struct_size;
  int32_t token_id; /* -1: no further token, text held back is shown now */
  const char* text;
  size_t text_bytes;
  int32_t finish; /* CELLM_FINISH_...; NONE except in the last one */
  float logprob;  /* with CELLM_REQUEST_LOGPROBS */
  const cellm_logprob* top;
  size_t top_count;
} cellm_token;
#define CELLM_TOKEN_INIT \
  { sizeof(cellm_token), 0, 0, 0, 0, 0, 0, 0 }
typedef int32_t (*cellm_token_fn)(const cellm_token* token, void* user);

/* Produces the next token (the first call evaluates the prompt). After the last one, whose finish
 * is not NONE, further calls give INVALID_ARGUMENT. BUSY: another call of _next, _poll or _run is
 * at it. Closing the request ends the wait of another thread with CELLM_FINISH_CANCELLED. */
CELLM_API cellm_status cellm_request_next(cellm_request* request, cellm_token* token,
                                          cellm_error* error);
/* The next token if there is one, without waiting or computing; *ready is 0 when there is none. For
 * use with cellm_engine_step. */
CELLM_API cellm_status cellm_request_poll(cellm_request* request, cellm_token* token,
                                          int32_t* ready, cellm_error* error);
/* Calls `callback` for each token until the reply ends; a non-zero return cancels, and so does
 * whoever closes the request meanwhile. Cancelling is no error: the status is OK and the receipt
 * says CELLM_FINISH_CANCELLED. */
CELLM_API cellm_status cellm_request_run(cellm_request* request, cellm_token_fn callback,
                                         void* user, cellm_error* error);
/* Ends the reply within the step under way, wherever it is: waiting, in its prompt or replying. Any
 * thread (but no signal handler: those set options.stop_flag). The session stays usable. */
CELLM_API void cellm_request_cancel(cellm_request* request);
CELLM_API void cellm_request_close(cellm_request* request);

/* The text that was shown of the reply so far, before a recovery too. */
CELLM_API cellm_status cellm_request_get_text(const cellm_request* request, char* buffer,
                                              size_t capacity, size_t* bytes, cellm_error* error);

/* What a reply cost. Times in nanoseconds. */
typedef struct cellm_receipt {
  uint32_t struct_size;
  int32_t finish;
  uint64_t prompt_tokens;    /* of the whole prompt, reused ones included */
  uint64_t reused_tokens;    /* of those, evaluated earlier, by this session or another */
  uint64_t generated_tokens; /* end id included */
  uint64_t seed;
  uint64_t prompt_ns;      /* evaluation of the prompt */
  uint64_t first_token_ns; /* from submit to the first token */
  uint64_t decode_ns;      /* from the first to the last token */
  double prompt_tokens_per_second;
  double decode_tokens_per_second;
  cellm_memory memory;       /* of the engine, at the end of the reply */
  uint64_t queue_ns;         /* from submit until its evaluation began */
  uint64_t preemptions;      /* times that it gave way to others */
  uint64_t forgotten_tokens; /* by CELLM_OVERFLOW_SHIFT and _SLIDE */
  uint64_t demoted_tokens;   /* positions 0 to this one were in fewer bits (kv_demote); 0: none */
} cellm_receipt;
#define CELLM_RECEIPT_INIT \
  { sizeof(cellm_receipt), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, CELLM_MEMORY_INIT, 0, 0, 0, 0 }
CELLM_API cellm_status cellm_request_get_receipt(const cellm_request* request,
                                                 cellm_receipt* receipt, cellm_error* error);

/* ---- journals ------------------------------------------------------------------------------- */

/* In an engine with a journal_folder every session (but private ones) appends what
 * happens to it to a file of its own, readable by its owner only, before the caller learns of it: a
 * process that is killed at any instruction loses nothing that it was told. A request, the end of a
 * reply, a rewind and the like are also brought to the disk (fsync) before the call returns, single
 * tokens with CELLM_ENGINE_JOURNAL_SYNC only; without it a power cut may cost the end of a reply
 * that was under way. A call that cannot write fails with CELLM_IO, a reply under way with it; the
 * next request begins another journal. Closing a session deletes its journal. */
typedef struct cellm_journal_info {
  uint32_t struct_size;
  cellm_status status; /* CELLM_OK: it can be recovered. BUSY: an open session writes it, here or in
                          another process. UNSUPPORTED: of another model or a newer version.
                          CORRUPT: it has no good beginning */
  cellm_text name;     /* what cellm_session_recover takes; pointers are valid during the call */
  cellm_text message;  /* why it cannot be recovered, else empty */
  const int32_t* ids;  /* the session's tokens */
  uint64_t tokens;
  uint64_t reply_tokens; /* the last of them, of the reply that was under way */
  uint64_t lost_bytes;   /* a record cut short or damaged and what follows it: left out */
  int64_t modified_ns;   /* when it was last written: since 1970 (UTC) */
  int32_t open_request;  /* 1: a reply was under way and is gone on with */
  int32_t reserved;
} cellm_journal_info;
#define CELLM_JOURNAL_INFO_INIT \
  { sizeof(cellm_journal_info), 0, {0, 0}, {0, 0}, 0, 0, 0, 0, 0, 0, 0 }
/* Called for each journal, by name; non-zero stops with CELLM_CANCELLED. */
typedef int32_t (*cellm_journal_fn)(const cellm_journal_info* info, void* user);
/* INVALID_ARGUMENT: the engine has no journal_folder. IO, NOT_FOUND: the folder. */
CELLM_API cellm_status cellm_engine_list_journals(cellm_engine* engine, cellm_journal_fn callback,
                                                  void* user, cellm_error* error);
/* Deletes a journal that no open session writes. INVALID_ARGUMENT (not a journal's name),
 * NOT_FOUND, BUSY, IO. */
CELLM_API cellm_status cellm_engine_remove_journal(cellm_engine* engine, const char* name,
                                                   size_t name_bytes, cellm_error* error);
/* The session that a journal tells of, as it was when the last record was written; it goes on
 * writing the journal. When a reply was under way, *request is that reply: its next token is the
 * one after the last that was handed out, bit for bit what it would have been, on an engine of the
 * same context, K/V format and activations. (cellm_request_get_text has what was shown before.)
 * Else *request is null. A reply whose constraint cannot be compiled ends as cancelled, which the
 * log says.
 * `request` null: a reply under way ends as cancelled. hooks (null allowed):
 * of a reply under way; progress, progress_user and stop_flag are used, the rest comes from the
 * journal. Errors as for cellm_journal_info.status, and OUT_OF_RANGE: longer than the engine's
 * context; OUT_OF_MEMORY; NOT_FOUND; IO. After a failure the file is as it was. */
CELLM_API cellm_status cellm_session_recover(cellm_engine* engine, const char* name,
                                             size_t name_bytes, const cellm_request_options* hooks,
                                             cellm_session** out, cellm_request** request,
                                             cellm_error* error);
/* Whether closing the session leaves its journal (1) or deletes it (0), instead of what
 * CELLM_SESSION_KEEP_JOURNAL said. */
CELLM_API cellm_status cellm_session_keep_journal(cellm_session* session, int32_t keep,
                                                  cellm_error* error);
/* The conversation as JSON: the messages of the last cellm_session_submit_chat, and the reply to
 * them as one of the assistant when it has ended. NOT_FOUND: the last request was none. */
CELLM_API cellm_status cellm_session_get_messages(const cellm_session* session, char* buffer,
                                                  size_t capacity, size_t* bytes,
                                                  cellm_error* error);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CELLM_CELLM_H_ */
