/* Feed hostile bytes to a board: fuzz SEED COUNT, or nothing at all: fuzz silence. A sanitizer ends the program where it reads or writes beyond.
 *
 * Half of the messages come from a neighbour with valid keys, which seals and signs whatever it likes. The same seed
 * gives the same messages. */
#include "peer.c"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t seed, drawn, clock_now;
static int pings, reconnected;

static uint32_t draw(uint32_t below) { return (uint32_t)(mlp_subkey(seed, drawn++) >> 33) % below; }

static uint64_t odd_number(void) {
    static const uint64_t edges[] = {0, 1, 2, 127, 128, 255, 65535, 65536, UINT32_MAX, UINT64_C(1) << 48, WIRE_END};
    return draw(3) ? draw(12) : edges[draw(sizeof edges / sizeof *edges)];
}

/* ------------------------------------------------------------------ the board, and a neighbour of it */

static const uint8_t FACTS[] = {0x81, 0xa1, 'a', 0xa1, 'b'}, SEED[2][32] = {{1}, {2}};
static const float START[MICRO_PARAMETERS];
static struct micro_peer board;
static struct seal_own other; /* the neighbour */
static struct seal_edge to_board[MICRO_NEIGHBOURS];
static uint8_t other_exchange[32], other_identity[32], stream[1 << 17];
static size_t stream_at, stream_end;

static struct micro_config config = {
    .name = "ada", .swarm = "clinic", .run = "clinic", .version = "2.0", .identity = SEED[0], .facts = FACTS,
    .facts_size = sizeof FACTS, .neighbours = {{"bob", NULL, 0.5f}, {"cleo", NULL, 0.25f}}, .rounds = 9,
    .gossip_steps = 2, .patience = 1, .gather = 1, .start = START};

static uint64_t milliseconds(void *context) {
    (void)context;
    return clock_now += draw(20);
}

static int swallow(void *context, const uint8_t *data, size_t size) {
    volatile uint8_t sum = 0; /* so that all bytes are read */
    (void)context;
    pings += size == 2 && data[0] == 0xc0;
    for (size_t i = 0; i < size; i++) sum = (uint8_t)(sum + data[i]);
    return 0;
}

static int supply(void *context, uint8_t *data, size_t size, uint32_t wait) {
    size_t left = stream_end - stream_at, some = 1 + draw(999);
    (void)context;
    if (left == 0) clock_now += wait;
    if (some > size) some = size;
    if (some > left) some = left;
    memcpy(data, stream + stream_at, some);
    stream_at += some;
    return (int)some;
}

static void begin(void) {
    memset(&board, 0, sizeof board);
    board.c = &config;
    board.platform.io = (struct mqtt_io){swallow, supply, NULL};
    board.platform.milliseconds = milliseconds;
    board.ahead_from = -1;
    board.incarnation = board.own.incarnation = 7;
    board.own.name = "ada";
    board.own.run = other.run = "clinic";
    board.own.exchange[0] = 3;
    crypto_exchange_public(board.exchange, board.own.exchange);
    crypto_sign_public(board.identity, SEED[0]);
    for (int i = 0; i < MICRO_NEIGHBOURS; i++) board.edges[i].name = config.neighbours[i].name;
    mqtt_begin(&board.mqtt, board.platform.io, board.in, sizeof board.in);
    other.name = "bob";
    other.incarnation = 5;
    other.exchange[0] = 4;
    other.sender[0] = 9;
    crypto_exchange_public(other_exchange, other.exchange);
    crypto_sign_public(other_identity, SEED[1]);
    memset(to_board, 0, sizeof to_board);
    to_board[0].name = "ada";
    board.announced = board.begun = 1;
    board.mixing = (int)draw(2);
    board.head = draw(5);
    board.round = draw(9);
    if (draw(2))
        for (size_t k = 0; k < MICRO_PARAMETERS; k++) board.model[k] = board.released[k] = 3e38f;
}

/* Introduce the neighbour, so that its messages are sealed for the board. */
static void introduce(void) {
    uint8_t wrapped[48];
    struct micro_other *n = board.others;
    if (seal_meet(board.edges, &board.own, 5, other_exchange, other.nonce) != 0) abort();
    if (seal_meet(to_board, &other, 7, board.exchange, board.own.nonce) != 0) abort();
    seal_wrap(wrapped, to_board, &other);
    if (seal_unwrap(board.edges, &board.own, wrapped, 0, 0) != 0) abort();
    board.edges[0].known = 1;
    n->incarnation = 5;
    n->known_identity = 1;
    n->gone = 0;
    memcpy(n->identity, other_identity, 32);
}

/* ------------------------------------------------------------------ messages */

static int none_missed(const void *context, uint32_t flow, uint64_t round, uint64_t step) {
    (void)context, (void)flow, (void)round, (void)step;
    return 0;
}

/* Fill the numbers of a row, sometimes with what makes a sum infinite, or is no number. */
static void fill(uint8_t *numbers) {
    static const float ODD[] = {0, 12.078f, FLT_MAX, -FLT_MAX, NAN, INFINITY, -INFINITY};
    float odd = ODD[draw(2) ? draw(4) : draw(sizeof ODD / sizeof *ODD)];
    size_t only = draw(2) ? draw(MICRO_PARAMETERS) : MICRO_PARAMETERS; /* one of them, or all */
    for (size_t k = 0; k < MICRO_PARAMETERS; k++) {
        float value = only < MICRO_PARAMETERS && k != only ? 0 : odd;
        memcpy(numbers + 4 * k, &value, sizeof value);
    }
}

/* Write a message of any kind, plausible but for some numbers. */
static size_t message(uint8_t *out, size_t room, enum wire_kind kind, uint64_t *sequence) {
    uint8_t some[64] = {0}, statement[256];
    *sequence = odd_number();
    if (kind == WIRE_HELLO) {
        struct wire_hello m = {.peer = "bob", .peer_size = 3, .incarnation = draw(2) ? 5 : odd_number(),
                               .status = (enum wire_status)draw(3), .facts = FACTS, .facts_size = sizeof FACTS,
                               .key = other_exchange, .key_size = 32, .identity = other_identity, .identity_size = 32,
                               .signature = some, .signature_size = 64, .nonce = some, .nonce_size = 16,
                               .version = "2.0", .version_size = 3, .turn = odd_number()};
        uint8_t signable[1024];
        size_t size = wire_hello(out, room, &m), frame = sizeof HELLO;
        size_t signed_size = wire_signable(signable + frame, sizeof signable - frame, "clinic", out + 3, size - 3);
        crypto_sign(some, SEED[1], framed(signable + frame, HELLO), signed_size + frame);
        return wire_hello(out, room, &m);
    }
    if (kind == WIRE_KEY) {
        struct wire_key m = {5, some, 48, (int)draw(2), (int)draw(2)};
        if (to_board[0].met) seal_wrap(some, to_board, &other);
        return wire_key(out, room, &m);
    }
    if (kind == WIRE_PULSE) {
        struct wire_pulse m = {.incarnation = 5, .tail = odd_number(), .head = odd_number(), .round = odd_number(),
                               .step = odd_number(), .has_first = 1};
        return wire_pulse(out, room, &m);
    }
    if (kind == WIRE_ACK) {
        struct wire_ack m = {.incarnation = 7, .next = odd_number(), .limit = odd_number(), .missing_count = draw(65)};
        for (uint32_t i = 0; i < m.missing_count; i++) m.missing[i] = odd_number();
        return wire_ack(out, room, &m);
    }
    if (kind == WIRE_ACCOUNT) {
        struct wire_flow f = {.peer = "ada", .incarnation = 7, .since = {draw(9), draw(2)}, .closed = {draw(9), 0},
                              .ended = (int)draw(2)};
        return wire_account(out, room, 5, odd_number(), &f, 1, 2, none_missed, NULL);
    }
    struct wire_chunk m = {.incarnation = 5, .sequence = draw(4) ? board.others[0].next : *sequence, .total = MICRO_ROW,
                           .trailer = some, .trailer_size = WIRE_SIGNATURE};
    m.first = *sequence = m.sequence;
    size_t size = wire_chunk_head(out, room, &m);
    uint8_t *row = out + size;
    fill(row + WIRE_ROW_HEAD);
    if (wire_row_head(row, draw(2) ? board.round : odd_number(), draw(2) ? board.step : draw(3), MICRO_PARAMETERS) != 0) return size;
    if (draw(2)) row[draw(WIRE_ROW_HEAD)] ^= (uint8_t)(1 << draw(8)); /* before it is signed */
    crypto_sign(some, SEED[1], statement, row_statement(&board, statement, "bob", 5, row));
    return wire_chunk_head(out, room, &m) + MICRO_ROW;
}

static size_t mutate(uint8_t *data, size_t size, size_t room) {
    for (uint32_t left = draw(2) ? draw(4) : 0; left > 0 && size > 0; left--) {
        size_t at = draw(2) ? draw((uint32_t)size) : draw(size < 40 ? (uint32_t)size : 40), some = 1 + draw(3);
        switch (draw(4)) {
        case 0: data[at] ^= (uint8_t)(1 << draw(8)); break;
        case 1: data[at] = (uint8_t)(draw(2) ? 0xff - draw(48) : draw(256)); break;
        case 2:
            if (some > size - at) some = size - at;
            memmove(data + at, data + at + some, size - at - some);
            size -= some;
            break;
        default:
            if (size + some > room) break;
            memmove(data + at + some, data + at, size - at);
            size += some;
        }
    }
    return size;
}

static void deliver(void) {
    static const char *const PLACES[] = {"bob/state", "ada/in/bob", "bob/pub/0", "bob/account", "ada/state", "ada/in/ada"};
    static uint8_t buffer[SEAL_HEAD + MICRO_ROW + 4096 + SEAL_TAG];
    char where[MICRO_TOPIC] = "p2pfl/v1/clinic/peer/";
    enum wire_kind kind = (enum wire_kind)(1 + draw(7));
    uint64_t sequence;
    uint8_t *at = buffer + SEAL_HEAD;
    size_t size = mutate(at, message(at, MICRO_ROW + 4096, kind, &sequence), MICRO_ROW + 4096), place;
    int sealed = to_board[0].met && draw(4) && kind >= WIRE_PULSE;
    if (sealed) at = seal(buffer, size, &size, kind == WIRE_CHUNK ? 0 : SEAL_CONTROL, sequence, &other, to_board, 0);
    if (draw(5) == 0) size = mutate(at, size, (size_t)(buffer + sizeof buffer - at));
    place = draw(5) == 0 ? draw(6) : kind == WIRE_HELLO ? 0 : kind == WIRE_ACCOUNT ? 3 : kind == WIRE_KEY ? 1 : 1 + draw(2);
    strcat(where, PLACES[place]);
    uint8_t *packet = stream + MQTT_HEADROOM, head_bytes[5], *start = packet;
    memcpy(packet, at, size);
    /* as a broker sends it, at QoS 1 or 0 */
    int quality = (int)draw(2);
    if (quality) start -= 2;
    size_t length = strlen(where);
    start -= length;
    memcpy(start, where, length);
    *--start = (uint8_t)length;
    *--start = 0;
    size_t body = (size_t)(packet - start) + size, some = 0;
    head_bytes[some++] = (uint8_t)(0x30 | quality << 1);
    for (; body > 127; body >>= 7) head_bytes[some++] = (uint8_t)(body | 0x80);
    head_bytes[some++] = (uint8_t)body;
    start -= some;
    memcpy(start, head_bytes, some);
    stream_at = (size_t)(start - stream);
    stream_end = (size_t)(packet - stream) + size;
    if (draw(20) == 0) { /* the broker is hostile as well */
        size_t whole = stream_end - stream_at;
        stream_end = stream_at + mutate(start, whole, whole);
    }
    while (stream_at < stream_end && board.error == NULL) (void)pump(&board, 0);
}

/* ------------------------------------------------------------------ a network that swallows everything */

/* The broker accepts the board again, whose neighbour must not have been taken for gone meanwhile. */
static int reconnect(void *context) {
    static const uint8_t CONNACK[] = {0x20, 2, 0, 0}, SUBACK[] = {0x90, 3, 0, 1, 1};
    (void)context;
    if (!is_present(&board, 0)) abort();
    reconnected++;
    memcpy(stream, CONNACK, sizeof CONNACK);
    stream_at = 0;
    stream_end = sizeof CONNACK;
    for (int i = 0; i < 2 + 3 * MICRO_NEIGHBOURS; i++, stream_end += sizeof SUBACK)
        memcpy(stream + stream_end, SUBACK, sizeof SUBACK);
    return 0;
}

static int silence(void) {
    begin();
    introduce();
    board.platform.reconnect = reconnect;
    while (clock_now < 60 * SECOND)
        if (pump(&board, 100) != 0) abort();
    printf("%d times reconnected, %d pings\n", reconnected, pings);
    return 0;
}

int main(int count, char **arguments) {
    if (count == 2 && strcmp(arguments[1], "silence") == 0) return silence();
    if (count != 3) return 2;
    seed = strtoull(arguments[1], NULL, 10);
    unsigned long most = strtoul(arguments[2], NULL, 10), added = 0, ended = 0;
    for (unsigned long done = 0; done < most;) {
        begin();
        if (draw(8)) introduce();
        for (int i = 0; i < 40 && done < most && board.error == NULL; i++, done++) {
            deliver();
            added += (unsigned long)board.others[0].got;
            board.others[0].got = 0;
            if (draw(4) == 0 && board.error == NULL && report(&board) != 0 && board.error == NULL) abort();
            if (!is_finite((const uint8_t *)board.model)) abort();
            if (board.ahead_from >= 0 && !is_finite((const uint8_t *)board.ahead)) abort();
        }
        ended += board.error != NULL;
    }
    printf("%lu models added, %lu boards ended with a sentence\n", added, ended);
    return 0;
}
