#include "blake3.h"

#include <string.h>

enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8, KEYED = 16 };

static const uint32_t IV[8] = {0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A,
                               0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19};

static const uint8_t ORDER[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};

static uint32_t turn(uint32_t x, int bits) { return x >> bits | x << (32 - bits); }

static uint32_t little_endian(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void mix(uint32_t *v, int a, int b, int c, int d, uint32_t x, uint32_t y) {
    v[a] += v[b] + x;
    v[d] = turn(v[d] ^ v[a], 16);
    v[c] += v[d];
    v[b] = turn(v[b] ^ v[c], 12);
    v[a] += v[b] + y;
    v[d] = turn(v[d] ^ v[a], 8);
    v[c] += v[d];
    v[b] = turn(v[b] ^ v[c], 7);
}

/* Replace a chaining value by that after a block. */
static void compress(uint32_t *chaining, const uint32_t *words, uint64_t counter, uint32_t size, uint32_t flags) {
    uint32_t v[16], m[16], permuted[16];
    memcpy(v, chaining, 32);
    memcpy(v + 8, IV, 16);
    v[12] = (uint32_t)counter;
    v[13] = (uint32_t)(counter >> 32);
    v[14] = size;
    v[15] = flags;
    memcpy(m, words, 64);
    for (int round = 0; round < 7; round++) {
        mix(v, 0, 4, 8, 12, m[0], m[1]);
        mix(v, 1, 5, 9, 13, m[2], m[3]);
        mix(v, 2, 6, 10, 14, m[4], m[5]);
        mix(v, 3, 7, 11, 15, m[6], m[7]);
        mix(v, 0, 5, 10, 15, m[8], m[9]);
        mix(v, 1, 6, 11, 12, m[10], m[11]);
        mix(v, 2, 7, 8, 13, m[12], m[13]);
        mix(v, 3, 4, 9, 14, m[14], m[15]);
        for (int i = 0; i < 16; i++) permuted[i] = m[ORDER[i]];
        memcpy(m, permuted, 64);
    }
    for (int i = 0; i < 8; i++) chaining[i] = v[i] ^ v[i + 8];
}

static void absorb(struct blake3 *h, uint32_t flags) {
    uint32_t words[16];
    for (int i = 0; i < 16; i++) words[i] = little_endian(h->block + 4 * i);
    if (h->blocks == 0) flags |= CHUNK_START;
    compress(h->chaining, words, h->chunk, h->filled, flags | h->flags);
    memset(h->block, 0, 64);
    h->filled = 0;
    h->blocks++;
}

/* Join the last chaining value of the stack with that of its right neighbour, which it replaces. */
static void join(struct blake3 *h, uint32_t *right, uint32_t flags) {
    uint32_t words[16];
    memcpy(words, h->stack[--h->depth], 32);
    memcpy(words + 8, right, 32);
    memcpy(right, h->key, 32);
    compress(right, words, 0, 64, PARENT | flags | h->flags);
}

void blake3_begin(struct blake3 *h, const uint8_t *key) {
    memset(h, 0, sizeof *h);
    h->flags = key == NULL ? 0 : KEYED;
    for (int i = 0; i < 8; i++) h->key[i] = key == NULL ? IV[i] : little_endian(key + 4 * i);
    memcpy(h->chaining, h->key, 32);
}

static void end_chunk(struct blake3 *h) {
    absorb(h, CHUNK_END);
    for (uint64_t count = ++h->chunk; !(count & 1); count >>= 1) join(h, h->chaining, 0);
    memcpy(h->stack[h->depth++], h->chaining, 32);
    memcpy(h->chaining, h->key, 32);
    h->blocks = 0;
}

void blake3_update(struct blake3 *h, const void *data, size_t size) {
    const uint8_t *at = data;
    while (size) {
        if (h->filled == 64) { /* only now is it known that more follows */
            if (h->blocks == 15) end_chunk(h);
            else absorb(h, 0);
        }
        size_t part = (size_t)(64 - h->filled);
        if (part > size) part = size;
        memcpy(h->block + h->filled, at, part);
        h->filled = (uint8_t)(h->filled + part);
        at += part;
        size -= part;
    }
}

void blake3_end(struct blake3 *h, uint8_t *out, size_t size) {
    absorb(h, CHUNK_END | (h->depth ? 0u : (uint32_t)ROOT));
    while (h->depth) join(h, h->chaining, h->depth == 1 ? ROOT : 0);
    for (size_t i = 0; i < size && i < 32; i++) out[i] = (uint8_t)(h->chaining[i / 4] >> 8 * (i % 4));
}
