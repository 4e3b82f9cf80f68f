#include "seal.h"

#include <string.h>

#include "blake3.h"
#include "crypto.h"

#define SEALED 5
#define TAG 16
#define INFO 192 /* bytes of the text that names a key */

static void decimal(char *out, uint64_t number) {
    char digits[20];
    int count = 0;
    do digits[count++] = (char)('0' + number % 10);
    while (number /= 10);
    while (count) *out++ = digits[--count];
    *out = 0;
}

static void hexadecimal(char *out, uint64_t number) {
    char digits[16];
    int count = 0;
    do digits[count++] = "0123456789abcdef"[number & 15];
    while (number >>= 4);
    while (count) *out++ = digits[--count];
    *out = 0;
}

/* The name of an end of an epoch: PEER/INCARNATION/NONCE. */
static void end_of(char out[80], const char *peer, uint64_t incarnation, const uint8_t nonce[16]) {
    size_t at = strlen(peer);
    memcpy(out, peer, at);
    out[at++] = '/';
    decimal(out + at, incarnation);
    at += strlen(out + at);
    out[at++] = '/';
    for (int i = 0; i < 16; i++) {
        out[at++] = "0123456789abcdef"[nonce[i] >> 4];
        out[at++] = "0123456789abcdef"[nonce[i] & 15];
    }
    out[at] = 0;
}

/* The order in which Python sorts the ends: by peer, then incarnation, then nonce. */
static int before(const char *a, uint64_t a_number, const uint8_t *a_nonce, const char *b, uint64_t b_number,
                  const uint8_t *b_nonce) {
    int order = strcmp(a, b);
    if (order == 0) order = a_number < b_number ? -1 : a_number > b_number;
    return order == 0 ? memcmp(a_nonce, b_nonce, 16) < 0 : order < 0;
}

static size_t append(char *out, size_t at, const char *text) {
    size_t size = strlen(text);
    memcpy(out + at, text, size);
    return at + size;
}

/* The key of one use of an edge; the receiver is named with its incarnation. */
static void edge_key(uint8_t out[32], const struct seal_edge *e, const struct seal_own *own, const char *purpose,
                     uint64_t incarnation, int attempt, const char *receiver, uint64_t receiver_incarnation) {
    char info[INFO], number[24];
    int mine = strcmp(own->name, e->name) < 0;
    size_t at = append(info, 0, "p2pfl/v1/");
    at = append(info, at, purpose);
    at = append(info, at, "/");
    at = append(info, at, mine ? own->name : e->name);
    at = append(info, at, "/");
    at = append(info, at, mine ? e->name : own->name);
    at = append(info, at, "/");
    decimal(number, incarnation);
    at = append(info, at, number);
    at = append(info, at, "/");
    decimal(number, (uint64_t)attempt);
    at = append(info, at, number);
    at = append(info, at, "/");
    at = append(info, at, receiver);
    at = append(info, at, "@");
    hexadecimal(number, receiver_incarnation);
    at = append(info, at, number);
    info[at++] = 1;
    crypto_hmac(out, e->secret, info, at);
}

int seal_meet(struct seal_edge *e, const struct seal_own *own, uint64_t incarnation, const uint8_t public_key[32],
              const uint8_t nonce[16]) {
    uint8_t shared[32], salt[32], digest[32];
    char text[INFO], end[80];
    int first = before(own->name, own->incarnation, own->nonce, e->name, incarnation, nonce);
    e->met = e->have = e->known = 0;
    if (crypto_exchange(shared, own->exchange, public_key) != 0) return -1;
    crypto_sha256(salt, own->run, strlen(own->run));
    crypto_hmac(e->secret, salt, shared, 32); /* of the edge in all epochs */
    size_t at = append(text, 0, "p2pfl/v1/epoch/");
    for (int i = 0; i < 2; i++) {
        if (i) at = append(text, at, "/");
        if (first == (i == 0)) end_of(end, own->name, own->incarnation, own->nonce);
        else end_of(end, e->name, incarnation, nonce);
        at = append(text, at, end);
    }
    crypto_sha256(digest, text, at);
    at = append(text, 0, "p2pfl/v1/epoch/");
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

static void digest_of(uint8_t out[32], const uint8_t prefix[13], const uint8_t *ciphertext, size_t size) {
    struct blake3 h;
    blake3_begin(&h, NULL);
    blake3_update(&h, prefix, 13);
    blake3_update(&h, ciphertext, size);
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
    crypto_seal(own->sender, prefix + 1, prefix, 13, message, size, message + size);
    digest_of(digest, prefix, message, size + SEAL_TAG);
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
    digest_of(digest, payload, payload + start, size - start);
    tag_of(mine, digest, e->tag_in);
    for (size_t i = 0; i < count; i++) {
        uint8_t difference = 0;
        for (int j = 0; j < TAG; j++) difference |= payload[15 + i * TAG + (size_t)j] ^ mine[j];
        found |= difference == 0;
    }
    if (!found) return NULL;
    *stream = (uint32_t)read_number(payload + 1, 4);
    *sequence = read_number(payload + 5, 8);
    *opened = size - start - SEAL_TAG;
    if (crypto_open(e->sender, payload + 1, payload, 13, payload + start, *opened, payload + size - SEAL_TAG) != 0)
        return NULL;
    return payload + start;
}
