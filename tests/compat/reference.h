#ifndef CELLM_TESTS_COMPAT_REFERENCE_H_
#define CELLM_TESTS_COMPAT_REFERENCE_H_

#include <stddef.h>
#include <stdint.h>

/* The greedy reply to `prompt` in a fresh session of the new interface; 0 when it fails. */
size_t reference_reply(const char* path, const uint32_t* prompt, size_t prompt_count,
                       uint32_t* reply, size_t capacity);

#endif /* CELLM_TESTS_COMPAT_REFERENCE_H_ */
