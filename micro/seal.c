#include "seal.h"

#include <string.h>

#include "blake3.h"
#include "crypto.h"
#include "text.h"

#define SEALED 5
#define TAG 16
#define INFO 192 /* bytes of the text that names a key */

/* Write the name of an end of an epoch: PEER/INCARNATION/NONCE. */
static size_t add_end(char *out, size_t at, const char *peer, uint64_t incarnation, const uint8_t nonce[16]) {
    at = text_add(out, at, peer);
    at = text_add(out, at, "/");
    at = text_add_number(out, at, incarnation, 10);
    at = text_add(out, at, "/");
    for (int i = 0; i < 16; i++) {
        at = text_add_number(out, at, nonce[i] >> 4, 16);
        at = text_add_number(out, at, nonce[i] & 15, 16);
    }
    return at;
}

/* The order in which Python sorts the ends: by peer, then incarnation, then nonce. */
static int before(const char *a, uint64_t a_number, const uint8_t *a_nonce, const char *b, uint64_t b_number,
                  const uint8_t *b_nonce) {
    int order = strcmp(a, b);
    if (order == 0) order = a_number < b_number ? -1 : a_number > b_number;
    return order == 0 ? memcmp(a_nonce, b_nonce, 16) < 0 : order < 0;
}

/* The key of one use of an edge; the receiver is named with its incarnation. */
static void edge_key(uint8_t out[32], const struct seal_edge *e, const struct seal_own *own, const char *purpose,
                     uint64_t incarnation, int attempt, const char *receiver, uint64_t receiver_incarnation) {
    char info[INFO];
    int mine = strcmp(own->name, e->name) < 0;
    size_t at = text_add(info, 0, "p2pfl/v1/");
    at = text_add(info, at, purpose);
    at = text_add(info, at, "/");
    at = text_add(info, at, mine ? own->name : e->name);
    at = text_add(info, at, "/");
    at = text_add(info, at, mine ? e->name : own->name);
    at = text_add(info, at, "/");
    at = text_add_number(info, at, incarnation, 10);
    at = text_add(info, at, "/");
    at = text_add_number(info, at, (uint64_t)attempt, 10);
    at = text_add(info, at, "/");
    at = text_add(info, at, receiver);
    at = text_add(info, at, "@");
    at = text_add_number(info, at, receiver_incarnation, 16);
    info[at++] = 1;
    crypto_hmac(out, e->secret, info, at);
}

int seal_meet(struct seal_edge *e, const struct seal_own *own, uint64_t incarnation, const uint8_t public_key[32],
              const uint8_t nonce[16]) {
    uint8_t shared[32], salt[32], digest[32];
    char text[INFO];
    int first = before(own->name, own->incarnation, own->nonce, e->name, incarnation, nonce);
    e->met = e->have = e->known = 0;
    if (crypto_exchange(shared, own->exchange, public_key) != 0) return -1;
    crypto_sha256(salt, own->run, strlen(own->run));
    crypto_hmac(e->secret, salt, shared, 32); /* of the edge in all epochs */
    size_t at = text_add(text, 0, "p2pfl/v1/epoch/");
    for (int i = 0; i < 2; i++) {
        if (i) at = text_add(text, at, "/");
        at = first == (i == 0) ? add_end(text, at, own->name, own->incarnation, own->nonce)
                               : add_end(text, at, e->name, incarnation, nonce);
    }
    crypto_sha256(digest, text, at);
    at = text_add(text, 0, "p2pfl/v1/epoch/");
    memcpy(text + at, digest, 16);
    text[at + 16] = 1;
    crypto_hmac(shared, e->secret, text, at + 17);
    memcpy(e->secret, shared, 32);
    e->incarnation = incarnation;
    edge_key(e->tag_out, e, own, "auth", own->incarnation, 0, e->name, incarnation);
    edge_key(e->tag_in, e, own, "auth", incarnation, 0, own->name, own->incarnation);
    e->met = 1;
    return 0;
}

static const char WRAP[] = "p2pfl/v1/sender-key";

void seal_wrap(uint8_t wrapped[48], const struct seal_edge *e, const struct seal_own *own) {
    static const uint8_t zero[12];
    uint8_t key[32];
    edge_key(key, e, own, "aead", own->incarnation, e->have + 2 * e->known, e->name, e->incarnation);
    memcpy(wrapped, own->sender, 32);
    crypto_seal(key, zero, WRAP, strlen(WRAP), wrapped, 32, wrapped + 32);
}

int seal_unwrap(struct seal_edge *e, const struct seal_own *own, const uint8_t wrapped[48], int have, int known) {
    static const uint8_t zero[12];
    uint8_t key[32], sender[32];
    edge_key(key, e, own, "aead", e->incarnation, have + 2 * known, own->name, own->incarnation);
    memcpy(sender, wrapped, 32);
    if (crypto_open(key, zero, WRAP, strlen(WRAP), sender, 32, wrapped + 32) != 0) return -1;
    memcpy(e->sender, sender, 32);
    e->have = 1;
    if (have) e->known = 1;
    return 0;
}

static void number(uint8_t *out, uint64_t value, int size) {
    for (int i = 0; i < size; i++) out[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t read_number(const uint8_t *in, int size) {
    uint64_t value = 0;
    for (int i = 0; i < size; i++) value |= (uint64_t)in[i] << 8 * i;
    return value;
}

/* Of a message: the prefix, what comes before its data, and the hash of its data. */
static void digest_of(uint8_t out[32], const uint8_t prefix[13], const uint8_t *message, size_t size) {
    struct blake3 h;
    size_t end = size < 3 ? size : 3 + (size_t)read_number(message + 1, 2);
    if (end > size) end = size;
    blake3_begin(&h, NULL);
    blake3_update(&h, message + end, size - end);
    blake3_end(&h, out, 32);
    blake3_begin(&h, NULL);
    blake3_update(&h, prefix, 13);
    blake3_update(&h, message, end);
    blake3_update(&h, out, 32);
    blake3_end(&h, out, 32);
}

static void tag_of(uint8_t out[TAG], const uint8_t digest[32], const uint8_t key[32]) {
    struct blake3 h;
    blake3_begin(&h, key);
    blake3_update(&h, digest, 32);
    blake3_end(&h, out, TAG);
}

uint8_t *seal(uint8_t *buffer, size_t size, size_t *sealed, uint32_t stream, uint64_t sequence,
              const struct seal_own *own, const struct seal_edge *edges, int only) {
    uint8_t prefix[13] = {SEALED}, digest[32], *message = buffer + SEAL_HEAD, *at = message;
    unsigned count = 0;
    number(prefix + 1, stream, 4);
    number(prefix + 5, sequence, 8); /* the nonce is what follows the first byte */
    digest_of(digest, prefix, message, size);
    crypto_seal(own->sender, prefix + 1, prefix, 13, message, size, message + size);
    for (int i = MICRO_NEIGHBOURS; i-- > 0;) {
        if (!edges[i].met || (only >= 0 && only != i)) continue;
        at -= TAG;
        tag_of(at, digest, edges[i].tag_out);
        count++;
    }
    at -= 2;
    number(at, count, 2);
    at -= 13;
    memcpy(at, prefix, 13);
    *sealed = (size_t)(message - at) + size + SEAL_TAG;
    return at;
}

uint8_t *seal_open(uint8_t *payload, size_t size, size_t *opened, uint32_t *stream, uint64_t *sequence,
                   const struct seal_edge *e) {
    uint8_t digest[32], mine[TAG], found = 0;
    if (!e->met || !e->have || size < 15 || payload[0] != SEALED) return NULL;
    size_t count = (size_t)read_number(payload + 13, 2), start = 15 + count * TAG;
    if (count > 4096 || size < start + SEAL_TAG) return NULL;
    *opened = size - start - SEAL_TAG;
    if (crypto_open(e->sender, payload + 1, payload, 13, payload + start, *opened, payload + size - SEAL_TAG) != 0)
        return NULL;
    digest_of(digest, payload, payload + start, *opened);
    tag_of(mine, digest, e->tag_in);
    for (size_t i = 0; i < count; i++) {
        uint8_t difference = 0;
        for (int j = 0; j < TAG; j++) difference |= payload[15 + i * TAG + (size_t)j] ^ mine[j];
        found |= difference == 0;
    }
    if (!found) return NULL;
    *stream = (uint32_t)read_number(payload + 1, 4);
    *sequence = read_number(payload + 5, 8);
    return payload + start;
}
