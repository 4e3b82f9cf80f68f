/* Keys of the edges of a board, and what they seal: p2pfl/network/protocol/wire/envelope.py has the format. */
#ifndef MICRO_SEAL_H
#define MICRO_SEAL_H

#include "config.h"

#define SEAL_CONTROL UINT32_C(0xffffffff) /* the stream of everything but chunks */
#define SEAL_HEAD (13 + 2 + 16 * MICRO_NEIGHBOURS) /* bytes before a sealed message */
#define SEAL_TAG 16                       /* and after it */

struct seal_own {
    const char *name, *run;
    uint64_t incarnation;
    uint8_t exchange[32], nonce[16], sender[32]; /* drawn by this incarnation */
};

struct seal_edge {
    const char *name; /* of the neighbour */
    uint64_t incarnation;
    uint8_t secret[32];         /* of the epoch of both incarnations */
    uint8_t tag_out[32], tag_in[32];
    uint8_t sender[32];         /* what the neighbour seals with */
    int met, have, known;       /* there is a secret; this has its key; it has this board's key */
};

/* Learn the public key of a neighbour's incarnation; return -1 for a weak one. */
int seal_meet(struct seal_edge *e, const struct seal_own *own, uint64_t incarnation, const uint8_t public_key[32],
              const uint8_t nonce[16]);
void seal_wrap(uint8_t wrapped[48], const struct seal_edge *e, const struct seal_own *own);
int seal_unwrap(struct seal_edge *e, const struct seal_own *own, const uint8_t wrapped[48], int have, int known);

/* Seal what lies after SEAL_HEAD bytes of a buffer, for one neighbour or for all (-1); return where it begins. */
uint8_t *seal(uint8_t *buffer, size_t size, size_t *sealed, uint32_t stream, uint64_t sequence,
              const struct seal_own *own, const struct seal_edge *edges, int only);

/* Open a payload in place; return the message, NULL if it is not authentic. */
uint8_t *seal_open(uint8_t *payload, size_t size, size_t *opened, uint32_t *stream, uint64_t *sequence,
                   const struct seal_edge *e);

#endif
