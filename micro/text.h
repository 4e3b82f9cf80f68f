/* Text that topics, signatures and keys consist of, written without sprintf. */
#ifndef MICRO_TEXT_H
#define MICRO_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Write after `at` bytes, with a zero behind; return where it stands. The caller has room for all. */
size_t text_add(char *out, size_t at, const char *text);
size_t text_add_number(char *out, size_t at, uint64_t number, unsigned base);

int text_equals(const char *text, size_t size, const char *known);

#endif
