#include "msgpack.h"

#include <string.h>

struct mp_reader mp_read(const uint8_t *data, size_t size) {
    struct mp_reader r = {data, data + size, 0};
    return r;
}

static const uint8_t *take(struct mp_reader *r, size_t size) {
    const uint8_t *at = r->at;
    if (r->failed || (size_t)(r->end - at) < size) {
        r->failed = 1;
        return NULL;
    }
    r->at += size;
    return at;
}

static uint64_t big_endian(struct mp_reader *r, size_t size) {
    const uint8_t *at = take(r, size);
    uint64_t value = 0;
    for (size_t i = 0; at != NULL && i < size; i++) value = value << 8 | at[i];
    return value;
}

static int next(struct mp_reader *r) {
    const uint8_t *at = take(r, 1);
    return at == NULL ? -1 : *at;
}

static uint32_t bounded(struct mp_reader *r, uint64_t value, uint32_t most) {
    if (r->failed || value > most) {
        r->failed = 1;
        return 0;
    }
    return (uint32_t)value;
}

uint64_t mp_read_uint(struct mp_reader *r, uint64_t most) {
    int kind = next(r);
    uint64_t value = 0;
    if (kind >= 0 && kind < 0x80) value = (uint64_t)kind;
    else if (kind >= 0xcc && kind <= 0xcf) value = big_endian(r, (size_t)1 << (kind - 0xcc));
    else r->failed = 1;
    if (value > most) r->failed = 1;
    return r->failed ? 0 : value;
}

int mp_read_bool(struct mp_reader *r) {
    int kind = next(r);
    if (kind != 0xc2 && kind != 0xc3) r->failed = 1;
    return kind == 0xc3;
}

int mp_read_nil(struct mp_reader *r) {
    if (r->failed || r->at == r->end || *r->at != 0xc0) return 0;
    r->at++;
    return 1;
}

uint32_t mp_read_array(struct mp_reader *r, uint32_t most) {
    int kind = next(r);
    uint64_t count = 0;
    if (kind >= 0x90 && kind < 0xa0) count = (uint64_t)kind & 0x0f;
    else if (kind == 0xdc || kind == 0xdd) count = big_endian(r, kind == 0xdc ? 2 : 4);
    else r->failed = 1;
    return bounded(r, count, most);
}

uint32_t mp_read_map(struct mp_reader *r, uint32_t most) {
    int kind = next(r);
    uint64_t count = 0;
    if (kind >= 0x80 && kind < 0x90) count = (uint64_t)kind & 0x0f;
    else if (kind == 0xde || kind == 0xdf) count = big_endian(r, kind == 0xde ? 2 : 4);
    else r->failed = 1;
    return bounded(r, count, most);
}

const char *mp_read_text(struct mp_reader *r, uint32_t *size, uint32_t most) {
    int kind = next(r);
    uint64_t length = 0;
    if (kind >= 0xa0 && kind < 0xc0) length = (uint64_t)kind & 0x1f;
    else if (kind >= 0xd9 && kind <= 0xdb) length = big_endian(r, (size_t)1 << (kind - 0xd9));
    else r->failed = 1;
    *size = bounded(r, length, most);
    const uint8_t *text = take(r, *size);
    for (uint32_t i = 0; text != NULL && i < *size; i++)
        if (text[i] >= 0x80) r->failed = 1;
    if (r->failed) *size = 0;
    return (const char *)text;
}

const uint8_t *mp_read_bytes(struct mp_reader *r, uint32_t *size, uint32_t most) {
    int kind = next(r);
    uint64_t length = 0;
    if (kind >= 0xc4 && kind <= 0xc6) length = big_endian(r, (size_t)1 << (kind - 0xc4));
    else r->failed = 1;
    *size = bounded(r, length, most);
    const uint8_t *data = take(r, *size);
    if (data == NULL) *size = 0;
    return data;
}

void mp_skip(struct mp_reader *r, int depth) {
    uint32_t size, count;
    if (r->failed || r->at == r->end || depth <= 0) {
        r->failed = 1;
        return;
    }
    int kind = *r->at;
    if (kind < 0x80 || kind >= 0xe0 || kind == 0xc0 || kind == 0xc2 || kind == 0xc3) r->at++;
    else if (kind < 0x90 || kind == 0xde || kind == 0xdf) {
        count = mp_read_map(r, 4096);
        for (uint32_t i = 0; i < 2 * count && !r->failed; i++) mp_skip(r, depth - 1);
    } else if (kind < 0xa0 || kind == 0xdc || kind == 0xdd) {
        count = mp_read_array(r, 4096);
        for (uint32_t i = 0; i < count && !r->failed; i++) mp_skip(r, depth - 1);
    } else if (kind < 0xc0 || (kind >= 0xd9 && kind <= 0xdb)) mp_read_text(r, &size, 65535);
    else if (kind >= 0xc4 && kind <= 0xc6) mp_read_bytes(r, &size, 65535);
    else if (kind >= 0xcc && kind <= 0xd3) take(r, 1 + ((size_t)1 << (kind & 3)));
    else if (kind == 0xca || kind == 0xcb) take(r, kind == 0xca ? 5 : 9);
    else r->failed = 1; /* extensions */
}

struct mp_writer mp_write(uint8_t *data, size_t size) {
    struct mp_writer w = {data, data + size, 0};
    return w;
}

void mp_raw(struct mp_writer *w, const uint8_t *data, size_t size) {
    if (w->failed || (size_t)(w->end - w->at) < size) {
        w->failed = 1;
        return;
    }
    if (size) memcpy(w->at, data, size);
    w->at += size;
}

static void head(struct mp_writer *w, int kind, uint64_t value, size_t size) {
    uint8_t bytes[9] = {(uint8_t)kind};
    for (size_t i = 0; i < size; i++) bytes[1 + i] = (uint8_t)(value >> 8 * (size - 1 - i));
    mp_raw(w, bytes, 1 + size);
}

void mp_uint(struct mp_writer *w, uint64_t value) {
    if (value < 0x80) head(w, (int)value, 0, 0);
    else if (value <= 0xff) head(w, 0xcc, value, 1);
    else if (value <= 0xffff) head(w, 0xcd, value, 2);
    else if (value <= 0xffffffff) head(w, 0xce, value, 4);
    else head(w, 0xcf, value, 8);
}

void mp_bool(struct mp_writer *w, int value) { head(w, value ? 0xc3 : 0xc2, 0, 0); }

void mp_nil(struct mp_writer *w) { head(w, 0xc0, 0, 0); }

static void counted(struct mp_writer *w, int small, int wide, uint32_t count) {
    if (count < 16) head(w, small | (int)count, 0, 0);
    else if (count <= 0xffff) head(w, wide, count, 2);
    else w->failed = 1; /* more than any message has */
}

void mp_array(struct mp_writer *w, uint32_t count) { counted(w, 0x90, 0xdc, count); }

void mp_map(struct mp_writer *w, uint32_t count) { counted(w, 0x80, 0xde, count); }

void mp_text(struct mp_writer *w, const char *text, size_t size) {
    if (size < 32) head(w, 0xa0 | (int)size, 0, 0);
    else if (size <= 0xff) head(w, 0xd9, size, 1);
    else if (size <= 0xffff) head(w, 0xda, size, 2);
    else w->failed = 1;
    mp_raw(w, (const uint8_t *)text, size);
}

void mp_bytes(struct mp_writer *w, const uint8_t *data, size_t size) {
    if (size <= 0xff) head(w, 0xc4, size, 1);
    else if (size <= 0xffff) head(w, 0xc5, size, 2);
    else w->failed = 1;
    mp_raw(w, data, size);
}
