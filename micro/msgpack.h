/* The part of msgpack that messages need. A reader or writer that has failed stays failed, and reads zeros. */
#ifndef MICRO_MSGPACK_H
#define MICRO_MSGPACK_H

#include <stddef.h>
#include <stdint.h>

struct mp_reader {
    const uint8_t *at, *end;
    int failed;
};

struct mp_writer {
    uint8_t *at, *end;
    int failed;
};

struct mp_reader mp_read(const uint8_t *data, size_t size);
uint64_t mp_read_uint(struct mp_reader *r, uint64_t most);
int mp_read_bool(struct mp_reader *r);
int mp_read_nil(struct mp_reader *r);                    /* true, and past it, if nil comes next */
uint32_t mp_read_array(struct mp_reader *r, uint32_t most);
uint32_t mp_read_map(struct mp_reader *r, uint32_t most);
/* Text must be ASCII: that is all that a board understands. */
const char *mp_read_text(struct mp_reader *r, uint32_t *size, uint32_t most);
const uint8_t *mp_read_bytes(struct mp_reader *r, uint32_t *size, uint32_t most);
void mp_skip(struct mp_reader *r, int depth);            /* one value, of at most this depth */

struct mp_writer mp_write(uint8_t *data, size_t size);
void mp_uint(struct mp_writer *w, uint64_t value);
void mp_bool(struct mp_writer *w, int value);
void mp_nil(struct mp_writer *w);
void mp_array(struct mp_writer *w, uint32_t count);
void mp_map(struct mp_writer *w, uint32_t count);
void mp_text(struct mp_writer *w, const char *text, size_t size);
void mp_bytes(struct mp_writer *w, const uint8_t *data, size_t size);
void mp_raw(struct mp_writer *w, const uint8_t *data, size_t size);

#endif
