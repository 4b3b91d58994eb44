/* cellm.h of the Rust system, for apps written against it: the same functions under the same names,
 * carried out by libcellm. Put <prefix>/include/cellm_compat on the include path and link
 * libcellm_compat and libcellm. New code uses <cellm/cellm.h>.
 *
 * Handles are numbers; 0 is none. Functions that return int32_t give 0 for success and -1 for
 * failure, except cellm_step_decode. Text in ends in NUL and is UTF-8. Text out goes into the
 * caller's buffer, ends in NUL, and is cut at the border of a character where it does not fit.
 *
 * What is different, on purpose:
 *   - A handle that was destroyed, or never was one, is an error and not a crash.
 *   - Calls may come from any thread. Calls for one engine wait for each other.
 *   - The error message belongs to the thread whose call failed; success leaves none behind.
 *   - A reply ends at the model's end tokens. The end token is handed out, and then the session has
 *     no more tokens. A session that fails leaves the ring; the others go on.
 *   - Token ids outside the vocabulary are refused, and so is a prompt beyond the context.
 *   - cellm_session_reset forgets everything, recurrent state included: the next prompt starts at
 *     position 0. A prompt submitted again is sampled again.
 *   - The repetition penalty lowers the score of what was said, whatever its sign, before top-k.
 *   - At the critical and emergency levels cellm_step_decode waits, so that there are at most 8 and
 *     2 tokens a second: callers that loop on 0 do not spin, and conversations do not stop.
 *   - What this build does not have (Metal, TurboQuant, images) is refused with a message.
 */
#ifndef CELLM_COMPAT_CELLM_H_
#define CELLM_COMPAT_CELLM_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define CELLM_COMPAT_API __attribute__((visibility("default")))
#else
#define CELLM_COMPAT_API
#endif

typedef uint64_t cellm_engine_t;
typedef uint64_t cellm_session_t; /* counts from 1 in each engine */
typedef uint64_t cellm_tokenizer_t;

#ifndef CELLM_BACKEND_CPU
#define CELLM_BACKEND_CPU 0
#endif
#ifndef CELLM_BACKEND_METAL
#define CELLM_BACKEND_METAL 1
#endif
#ifndef CELLM_KV_ENCODING_F16
#define CELLM_KV_ENCODING_F16 0
#endif
#ifndef CELLM_KV_ENCODING_TURBOQUANT
#define CELLM_KV_ENCODING_TURBOQUANT 1
#endif

/* Copies the message of this thread's last failure and forgets it. Returns its bytes without the
 * NUL; 0 when there is none. With no buffer the message is kept. */
CELLM_COMPAT_API size_t cellm_last_error_message(char* out_buf, size_t buf_len);
/* -1: this build has no Metal. */
CELLM_COMPAT_API int32_t cellm_metal_smoke_test(void);

/* The cache holds total_blocks * tokens_per_block tokens of all sessions together. v1 takes the
 * likeliest token (temperature 0). top_k 0: all. seed: each session draws from its own stream. */
CELLM_COMPAT_API cellm_engine_t cellm_engine_create(const char* model_path,
                                                    uint32_t tokens_per_block,
                                                    uint32_t total_blocks, uint32_t top_k);
CELLM_COMPAT_API cellm_engine_t cellm_engine_create_v2(const char* model_path,
                                                       uint32_t tokens_per_block,
                                                       uint32_t total_blocks, uint32_t top_k,
                                                       float temperature, float repeat_penalty,
                                                       uint32_t repeat_window, uint64_t seed);
CELLM_COMPAT_API cellm_engine_t cellm_engine_create_v3(const char* model_path,
                                                       uint32_t tokens_per_block,
                                                       uint32_t total_blocks, uint32_t top_k,
                                                       float temperature, float repeat_penalty,
                                                       uint32_t repeat_window, uint64_t seed,
                                                       uint32_t backend);
/* The last two matter for CELLM_KV_ENCODING_TURBOQUANT alone. */
CELLM_COMPAT_API cellm_engine_t cellm_engine_create_v4(
    const char* model_path, uint32_t tokens_per_block, uint32_t total_blocks, uint32_t top_k,
    float temperature, float repeat_penalty, uint32_t repeat_window, uint64_t seed,
    uint32_t backend, uint32_t kv_encoding, uint32_t turboq_int8_dot, uint32_t turboq_qjl_corr);
CELLM_COMPAT_API void cellm_engine_destroy(cellm_engine_t engine);
CELLM_COMPAT_API size_t cellm_engine_backend_name(cellm_engine_t engine, char* out_buf,
                                                  size_t buf_len);             /* "cpu" */
CELLM_COMPAT_API uint32_t cellm_engine_is_litert_proxy(cellm_engine_t engine); /* 0 */
/* Continues the prompt until an end token, the end of the context or of the buffer. Bytes written;
 * 0 on failure. */
CELLM_COMPAT_API size_t cellm_engine_generate_text(cellm_engine_t engine, const char* prompt,
                                                   char* out_buf, size_t buf_len);
/* 0: this build has no images and no sound. */
CELLM_COMPAT_API size_t cellm_engine_generate_multimodal(cellm_engine_t engine, const char* prompt,
                                                         const char* image_path,
                                                         const char* audio_path, char* out_buf,
                                                         size_t buf_len);

/* Of a tokenizer.json or a model file. */
CELLM_COMPAT_API cellm_tokenizer_t cellm_tokenizer_create(const char* path);
CELLM_COMPAT_API void cellm_tokenizer_destroy(cellm_tokenizer_t tokenizer);
/* Special tokens spelled out in the text become their ids; none are added. No buffer: returns how
 * many ids there are. Else writes at most max_tokens and returns how many it wrote. */
CELLM_COMPAT_API size_t cellm_tokenizer_encode(cellm_tokenizer_t tokenizer, const char* text,
                                               uint32_t* out_tokens, size_t max_tokens);
/* Special tokens stay in the text. No buffer: returns how many bytes there are. */
CELLM_COMPAT_API size_t cellm_tokenizer_decode(cellm_tokenizer_t tokenizer, const uint32_t* tokens,
                                               size_t token_count, char* out_buf, size_t buf_len);

CELLM_COMPAT_API cellm_session_t cellm_session_create(cellm_engine_t engine);
/* Ends the session and frees its memory. */
CELLM_COMPAT_API int32_t cellm_session_cancel(cellm_engine_t engine, cellm_session_t session);
/* Takes the session out of turn, with what it remembers; resume puts it back. */
CELLM_COMPAT_API int32_t cellm_session_suspend(cellm_engine_t engine, cellm_session_t session);
CELLM_COMPAT_API int32_t cellm_session_resume(cellm_engine_t engine, cellm_session_t session);
CELLM_COMPAT_API int32_t cellm_session_reset(cellm_engine_t engine, cellm_session_t session);
/* 0 nominal, 1 elevated, 2 critical, 3 emergency. */
CELLM_COMPAT_API int32_t cellm_engine_set_thermal_level(cellm_engine_t engine, uint32_t level);
/* Evaluates the prompt, after what the session remembers, and hands out the first token. -1 while
 * the session is decoding: suspend or reset it first. */
CELLM_COMPAT_API int32_t cellm_submit_tokens(cellm_engine_t engine, cellm_session_t session,
                                             const uint32_t* tokens, size_t token_count,
                                             uint32_t* out_next_token);
/* The same; a prompt equal to the session's last one starts it anew. out_cache_hit: 1 when nothing
 * but the last token had to be evaluated. */
CELLM_COMPAT_API int32_t cellm_submit_tokens_cached(cellm_engine_t engine, cellm_session_t session,
                                                    const uint32_t* tokens, size_t token_count,
                                                    uint32_t* out_next_token,
                                                    uint32_t* out_cache_hit);
/* 1: one token of the session whose turn it is. 0: no session has more tokens. -1: that session
 * failed. */
CELLM_COMPAT_API int32_t cellm_step_decode(cellm_engine_t engine, cellm_session_t* out_session,
                                           uint32_t* out_token);
/* In blocks of tokens_per_block tokens. */
CELLM_COMPAT_API int32_t cellm_engine_kv_stats(cellm_engine_t engine, uint32_t* out_used_blocks,
                                               uint32_t* out_free_blocks);

/* Images: -1 (0 for the count) in this build. */
CELLM_COMPAT_API int32_t cellm_vlm_describe_image(cellm_engine_t engine, cellm_session_t session,
                                                  const uint8_t* image_bytes, size_t image_len,
                                                  const char* prompt, char* out_buf,
                                                  size_t buf_len);
CELLM_COMPAT_API int32_t cellm_vlm_last_timings_ms(double* patch_ms, double* encoder_ms,
                                                   double* decode_ms, double* total_ms);
CELLM_COMPAT_API uint32_t cellm_vlm_last_encoder_layer_count(void);
CELLM_COMPAT_API int32_t cellm_vlm_last_encoder_layer_time_ms(uint32_t index, double* ms);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* CELLM_COMPAT_CELLM_H_ */
