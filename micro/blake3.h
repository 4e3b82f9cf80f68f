/* BLAKE3 (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, 2020), without parallelism: hashes and keyed hashes. */
#ifndef MICRO_BLAKE3_H
#define MICRO_BLAKE3_H

#include <stddef.h>
#include <stdint.h>

#define BLAKE3_DEPTH 16 /* of the tree: 64 MiB */

struct blake3 {
    uint32_t key[8], chaining[8];
    uint32_t stack[BLAKE3_DEPTH][8];
    uint8_t block[64];
    uint64_t chunk;
    uint8_t filled, blocks, depth, flags;
};

void blake3_begin(struct blake3 *h, const uint8_t *key); /* 32 bytes, or NULL */
void blake3_update(struct blake3 *h, const void *data, size_t size);
void blake3_end(struct blake3 *h, uint8_t *out, size_t size); /* of at most 32 bytes */

#endif
