/* Messages of p2pfl that a plain round needs; p2pfl/network/protocol/wire/messages.py describes their fields.
 *
 * What is decoded points into the payload. A message that Python would refuse is refused here; some that Python reads
 * are not understood, and a board without them goes on. */
#ifndef MICRO_WIRE_H
#define MICRO_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define WIRE_VERSION 19
#define WIRE_END UINT64_C(0x7fffffffffffffff) /* of all gossip steps */
#define WIRE_ROW_HEAD 64                      /* bytes before the numbers of a row */
#define WIRE_SIGNATURE 64

enum wire_kind { WIRE_UNKNOWN, WIRE_HELLO, WIRE_KEY, WIRE_CLAIM, WIRE_PULSE, WIRE_ACK, WIRE_ACCOUNT, WIRE_CHUNK };
enum wire_status { WIRE_UP, WIRE_LEFT, WIRE_DEAD };

struct wire_hello {
    const char *peer, *version;
    uint32_t peer_size, version_size;
    uint64_t incarnation, attempt, turn;
    enum wire_status status;
    const uint8_t *facts, *key, *identity, *signature, *answers, *nonce; /* facts as msgpack */
    uint32_t facts_size, key_size, identity_size, signature_size, answers_size, nonce_size;
    uint64_t rounds[4];
    uint32_t rounds_count;
    int done;
    const uint8_t *head; /* as it came, from which the signed bytes follow */
    uint32_t head_size;
};

struct wire_key {
    uint64_t incarnation;
    const uint8_t *wrapped;
    uint32_t wrapped_size;
    int have, known;
};

struct wire_claim {
    uint64_t incarnation;
    const uint8_t *key;
    uint32_t key_size;
};

struct wire_pulse {
    uint64_t incarnation, phase, tail, head, round, step, first, work;
    int waiting, has_first;
};

struct wire_ack {
    uint64_t incarnation, phase, next, limit, missing[64];
    uint32_t missing_count;
};

/* Of an account, what it states for one peer: where its statements begin to matter, and whether it has ended. */
struct wire_account {
    uint64_t incarnation, number, settled[2];
    int stated, ended;
};

struct wire_chunk {
    uint64_t incarnation, phase, sequence, first, offset, total;
    const uint8_t *trailer, *data;
    uint32_t trailer_size, size;
};

struct wire_message {
    enum wire_kind kind;
    union {
        struct wire_hello hello;
        struct wire_key key;
        struct wire_claim claim;
        struct wire_pulse pulse;
        struct wire_ack ack;
        struct wire_account account;
        struct wire_chunk chunk;
    } as;
};

struct wire_row {
    uint64_t round, step;
    const uint8_t *numbers; /* little-endian float32 */
    uint32_t length;
};

/* Return 0, or -1 for bytes that are no message. `me` is whose statements of an account are read. */
int wire_decode(struct wire_message *out, const uint8_t *payload, size_t size, const char *me);

/* Write a message; return its bytes, 0 if there is no room. */
size_t wire_hello(uint8_t *out, size_t room, const struct wire_hello *m);
size_t wire_key(uint8_t *out, size_t room, const struct wire_key *m);
size_t wire_claim(uint8_t *out, size_t room, const struct wire_claim *m);
size_t wire_pulse(uint8_t *out, size_t room, const struct wire_pulse *m);
size_t wire_ack(uint8_t *out, size_t room, const struct wire_ack *m);
size_t wire_chunk_head(uint8_t *out, size_t room, const struct wire_chunk *m);

/* Gossip steps (round, step) from `since` to before `closed`, `steps` a round, of which all were applied but those of
 * which `missed` is true; `ended` closes all. For one neighbour, of `incarnation`. */
struct wire_flow {
    const char *peer;
    uint64_t incarnation, since[2], closed[2];
    int ended;
};
size_t wire_account(uint8_t *out, size_t room, uint64_t incarnation, uint64_t number, const struct wire_flow *flows,
                    uint32_t count, uint64_t steps,
                    int (*missed)(const void *context, uint32_t flow, uint64_t round, uint64_t step),
                    const void *context);

/* The signed bytes of an announcement, from the bytes of its head: SWARM/HEAD without the signature. */
size_t wire_signable(uint8_t *out, size_t room, const char *swarm, const uint8_t *head, size_t size);

/* The 64 bytes before the numbers of a row; and a message of a whole row. */
int wire_row_head(uint8_t out[WIRE_ROW_HEAD], uint64_t round, uint64_t step, uint32_t length);
int wire_read_row(struct wire_row *out, const uint8_t *message, size_t size);

#endif
