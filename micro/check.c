/* What tests ask of the parts: reads requests from standard input, each a letter, a length and bytes, and answers.
 *
 *   m BYTES   a message is decoded and encoded again: its bytes, or nothing where it is refused
 *   r BYTES   a row's head is decoded and encoded again, likewise
 *   h BYTES   BLAKE3
 *   k BYTES   BLAKE3 of what follows the first 32 bytes, which are the key
 *   o BYTES   the order of so many samples under a key, u64 and u32
 *   s BYTES   the signed bytes of an announcement in the swarm "clinic"
 *   t BYTES   train: u32 samples, batch, steps and round; u64 key; f32 rate; parameters, features, u16 targets
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blake3.h"
#include "mlp.h"
#include "wire.h"

#define MOST 100000

static size_t again(uint8_t *out, const struct wire_message *m) {
    switch (m->kind) {
    case WIRE_HELLO: return wire_hello(out, MOST, &m->as.hello);
    case WIRE_KEY: return wire_key(out, MOST, &m->as.key);
    case WIRE_CLAIM: return wire_claim(out, MOST, &m->as.claim);
    case WIRE_PULSE: return wire_pulse(out, MOST, &m->as.pulse);
    case WIRE_ACK: return wire_ack(out, MOST, &m->as.ack);
    case WIRE_CHUNK: {
        size_t size = wire_chunk_head(out, MOST, &m->as.chunk);
        if (m->as.chunk.size) memcpy(out + size, m->as.chunk.data, m->as.chunk.size);
        return size + m->as.chunk.size;
    }
    default: /* of an account, what a board reads of it */
        return (size_t)sprintf((char *)out, "%llu %llu %llu %llu %d %d", (unsigned long long)m->as.account.incarnation,
                               (unsigned long long)m->as.account.number, (unsigned long long)m->as.account.settled[0],
                               (unsigned long long)m->as.account.settled[1], m->as.account.stated,
                               m->as.account.ended);
    }
}

static void rest(void *context) { (void)context; }

/* Copy the next bytes of a request. */
static const uint8_t *next(void *out, const uint8_t *data, size_t size) {
    memcpy(out, data, size);
    return data + size;
}

static size_t train(const uint8_t *data, uint8_t *out) {
    static float parameters[MICRO_PARAMETERS], gradient[MICRO_PARAMETERS], features[MICRO_SAMPLES * 64];
    static uint16_t targets[MICRO_SAMPLES];
    static struct mlp_memory memory = {.gradient = gradient};
    struct micro_config c = {.widths = {64, 32, 10}, .features = features, .targets = targets};
    uint32_t round;
    data = next(&c.samples, data, 4);
    data = next(&c.batch, data, 4);
    data = next(&c.local_steps, data, 4);
    data = next(&round, data, 4);
    data = next(&c.batch_key, data, 8);
    data = next(&c.rate, data, 4);
    if (c.samples > MICRO_SAMPLES) return 0;
    data = next(parameters, data, sizeof parameters);
    data = next(features, data, c.samples * 64 * sizeof *features);
    next(targets, data, c.samples * sizeof *targets);
    mlp_train(&c, parameters, round, &memory, rest, NULL);
    memcpy(out, parameters, sizeof parameters);
    return sizeof parameters;
}

static size_t order(const uint8_t *data, uint8_t *out) {
    static uint16_t positions[MICRO_SAMPLES];
    uint64_t key;
    uint32_t samples;
    next(&samples, next(&key, data, 8), 4);
    if (samples > MICRO_SAMPLES) return 0;
    mlp_order(positions, samples, key);
    memcpy(out, positions, samples * sizeof *positions);
    return samples * sizeof *positions;
}

static size_t answer(int asked, const uint8_t *data, size_t size, uint8_t *out) {
    struct wire_message message;
    struct wire_row row;
    struct blake3 hash;
    switch (asked) {
    case 'm':
        if (wire_decode(&message, data, size, "ada") != 0) return 0;
        return again(out, &message);
    case 'r':
        if (wire_read_row(&row, data, size) != 0) return 0;
        return wire_row_head(out, row.round, row.step, row.length) == 0 ? WIRE_ROW_HEAD : 0;
    case 'h':
    case 'k':
        blake3_begin(&hash, asked == 'k' ? data : NULL);
        if (asked == 'k') data += 32, size -= 32;
        for (size_t part = 1; size; part = part * 3 + 1) { /* in pieces of all sizes */
            size_t some = part < size ? part : size;
            blake3_update(&hash, data, some);
            data += some;
            size -= some;
        }
        blake3_end(&hash, out, 32);
        return 32;
    case 's':
        if (wire_decode(&message, data, size, "ada") != 0 || message.kind != WIRE_HELLO) return 0;
        return wire_signable(out, MOST, "clinic", message.as.hello.head, message.as.hello.head_size);
    case 'o': return order(data, out);
    case 't': return train(data, out);
    default: return 0;
    }
}

int main(void) {
    static uint8_t out[MOST];
    int asked;
    while ((asked = getchar()) != EOF) {
        uint8_t length[4];
        if (fread(length, 1, 4, stdin) != 4) return 2;
        size_t size = (size_t)length[0] | (size_t)length[1] << 8 | (size_t)length[2] << 16;
        uint8_t *data = malloc(size ? size : 1); /* of exactly this size, so that a sanitizer sees what reads beyond */
        if (size > MOST - 16384 || data == NULL || fread(data, 1, size, stdin) != size) return 2;
        size_t answered = answer(asked, data, size, out);
        free(data);
        for (int i = 0; i < 4; i++) putchar((int)(answered >> 8 * i & 0xff));
        fwrite(out, 1, answered, stdout);
        fflush(stdout);
    }
    return 0;
}
