#include "wire.h"

#include <string.h>

#include "msgpack.h"
#include "text.h"

#define PREFIX 3
#define SEQUENCE (UINT64_C(1) << 48)
#define COORDINATE WIRE_END
#define ROUND (UINT64_C(1) << 32)
#define DEPTH 8

static const char *const TAGS[] = {"", "hello", "key", "claim", "pulse", "ack", "account", "chunk"};
static const char *const STATUS[] = {"up", "left", "dead"};

static int is_name(const char *text, uint32_t size) {
    if (size < 1 || size > 22) return 0;
    for (uint32_t i = 0; i < size; i++) {
        char c = text[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-'))
            return 0;
    }
    return 1;
}

/* ------------------------------------------------------------------ reading */

static void read_hello(struct mp_reader *r, uint32_t left, struct wire_hello *m) {
    uint32_t size, count;
    const char *status;
    m->peer = mp_read_text(r, &m->peer_size, 22);
    if (!r->failed && !is_name(m->peer, m->peer_size)) r->failed = 1;
    m->incarnation = mp_read_uint(r, WIRE_END);
    status = mp_read_text(r, &size, 8);
    if (r->failed) return;
    if (text_equals(status, size, STATUS[WIRE_UP])) m->status = WIRE_UP;
    else if (text_equals(status, size, STATUS[WIRE_LEFT])) m->status = WIRE_LEFT;
    else if (text_equals(status, size, STATUS[WIRE_DEAD])) m->status = WIRE_DEAD;
    else r->failed = 1;
    for (uint32_t field = 3; field < left && !r->failed; field++) {
        switch (field) {
        case 3:
            m->facts = r->at;
            count = mp_read_map(r, 512);
            for (uint32_t i = 0; i < count && !r->failed; i++) {
                mp_read_text(r, &size, 256);
                mp_read_text(r, &size, 16384);
            }
            m->facts_size = (uint32_t)(r->at - m->facts);
            break;
        case 4: m->key = mp_read_bytes(r, &m->key_size, 32); break;
        case 5: m->identity = mp_read_bytes(r, &m->identity_size, 32); break;
        case 6: m->signature = mp_read_bytes(r, &m->signature_size, 64); break;
        case 7: m->answers = mp_read_bytes(r, &m->answers_size, 32); break;
        case 8:
            m->rounds_count = mp_read_array(r, 4);
            for (uint32_t i = 0; i < m->rounds_count; i++) m->rounds[i] = mp_read_uint(r, ROUND);
            break;
        case 9: m->attempt = mp_read_uint(r, UINT64_C(1) << 62); break;
        case 10: m->turn = mp_read_uint(r, SEQUENCE); break;
        case 11: m->done = mp_read_bool(r); break;
        case 12: m->version = mp_read_text(r, &m->version_size, 32); break;
        case 13: m->nonce = mp_read_bytes(r, &m->nonce_size, 16); break;
        default: mp_skip(r, DEPTH);
        }
    }
}

static uint32_t skip_rest(struct mp_reader *r, uint32_t left, uint32_t known) {
    for (uint32_t field = known; field < left && !r->failed; field++) mp_skip(r, DEPTH);
    return left;
}

static void read_pulse(struct mp_reader *r, uint32_t left, struct wire_pulse *m) {
    uint32_t size, count;
    m->incarnation = mp_read_uint(r, WIRE_END);
    m->phase = mp_read_uint(r, ROUND - 2);
    m->tail = mp_read_uint(r, SEQUENCE);
    m->head = mp_read_uint(r, SEQUENCE);
    for (uint32_t field = 4; field < left && !r->failed; field++) {
        switch (field) {
        case 4: m->round = mp_read_uint(r, ROUND); break;
        case 5: m->step = mp_read_uint(r, ROUND); break;
        case 6: m->waiting = mp_read_bool(r); break;
        case 7:
            m->has_first = !mp_read_nil(r);
            if (m->has_first) m->first = mp_read_uint(r, ROUND);
            break;
        case 8: /* the digest of a total, of which a board has none */
            if (mp_read_nil(r)) break;
            count = mp_read_array(r, 64);
            mp_read_uint(r, ROUND);
            mp_read_uint(r, UINT64_C(1) << 62);
            mp_read_uint(r, SEQUENCE);
            mp_read_bytes(r, &size, 32);
            if (count < 4 || size != 32) r->failed = 1;
            skip_rest(r, count, 4);
            break;
        case 9: m->work = mp_read_uint(r, SEQUENCE); break;
        default: mp_skip(r, DEPTH);
        }
    }
}

static void read_ack(struct mp_reader *r, uint32_t left, struct wire_ack *m) {
    m->incarnation = mp_read_uint(r, WIRE_END);
    m->phase = mp_read_uint(r, ROUND - 2);
    m->next = mp_read_uint(r, SEQUENCE);
    m->limit = mp_read_uint(r, SEQUENCE);
    if (left < 5) return;
    m->missing_count = mp_read_array(r, 64); /* a peer asks for at most as many at once */
    for (uint32_t i = 0; i < m->missing_count; i++) m->missing[i] = mp_read_uint(r, SEQUENCE);
    skip_rest(r, left, 5);
}

/* Read a place, (round, step) or the end of all; the first two coordinates of a longer one. */
static void read_place(struct mp_reader *r, uint64_t place[2]) {
    uint32_t count = mp_read_array(r, 4);
    place[0] = place[1] = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t each = mp_read_uint(r, COORDINATE);
        if (i < 2) place[i] = each;
    }
}

static void skip_places(struct mp_reader *r) {
    uint64_t place[2];
    uint32_t count = mp_read_array(r, 4096);
    for (uint32_t i = 0; i < count && !r->failed; i++) read_place(r, place);
}

static void read_account(struct mp_reader *r, uint32_t left, struct wire_account *m, const char *me) {
    uint32_t count, fields, size;
    m->incarnation = mp_read_uint(r, WIRE_END);
    m->number = mp_read_uint(r, SEQUENCE);
    for (uint32_t field = 2; field < left && !r->failed; field++) {
        count = field == 2 ? mp_read_array(r, 4096) : 0;
        for (uint32_t i = 0; i < count && !r->failed; i++) {
            uint64_t place[2], closed[2], settled[2];
            if (mp_read_array(r, 2) != 2) r->failed = 1;
            fields = mp_read_array(r, 64);
            if (fields < 5) r->failed = 1;
            read_place(r, place);
            read_place(r, closed);
            skip_places(r);
            skip_places(r);
            read_place(r, settled);
            skip_rest(r, fields, 5);
            uint32_t names = mp_read_array(r, 4096);
            int mine = names == 0;
            for (uint32_t j = 0; j < names && !r->failed; j++) {
                const char *name = mp_read_text(r, &size, 22);
                if (!r->failed && !is_name(name, size)) r->failed = 1;
                if (!r->failed && me != NULL && text_equals(name, size, me)) mine = 1;
            }
            if (!r->failed && mine && !m->stated) {
                m->stated = 1;
                m->ended = closed[0] == WIRE_END;
                memcpy(m->settled, settled, sizeof settled);
            }
        }
        if (field == 3) mp_read_bool(r);
        if (field == 4) {
            count = mp_read_map(r, 4096);
            for (uint32_t i = 0; i < count && !r->failed; i++) {
                const char *name = mp_read_text(r, &size, 22);
                if (!r->failed && !is_name(name, size)) r->failed = 1;
                mp_read_uint(r, WIRE_END);
            }
        }
        if (field > 4) mp_skip(r, DEPTH);
    }
}

static void read_chunk(struct mp_reader *r, uint32_t left, struct wire_chunk *m) {
    m->incarnation = mp_read_uint(r, WIRE_END);
    m->phase = mp_read_uint(r, ROUND - 2);
    m->sequence = mp_read_uint(r, SEQUENCE);
    m->first = mp_read_uint(r, SEQUENCE);
    m->offset = mp_read_uint(r, UINT64_C(1) << 40);
    m->total = mp_read_uint(r, UINT64_C(1) << 40);
    if (left > 6) m->trailer = mp_read_bytes(r, &m->trailer_size, WIRE_SIGNATURE);
    if (left > 7) r->failed = 1; /* data are no field */
}

int wire_decode(struct wire_message *out, const uint8_t *payload, size_t size, const char *me) {
    static const uint8_t LEAST[] = {0, 3, 4, 1, 4, 4, 2, 6};
    uint32_t tag_size, fields;
    const char *tag;
    memset(out, 0, sizeof *out);
    if (size < PREFIX || payload[0] != WIRE_VERSION) return -1;
    size_t end = PREFIX + ((size_t)payload[1] | (size_t)payload[2] << 8);
    if (end > size) return -1;
    struct mp_reader r = mp_read(payload + PREFIX, end - PREFIX);
    fields = mp_read_array(&r, 64);
    tag = mp_read_text(&r, &tag_size, 16);
    if (r.failed || fields == 0) return -1;
    for (int kind = WIRE_HELLO; kind <= WIRE_CHUNK; kind++)
        if (text_equals(tag, tag_size, TAGS[kind])) out->kind = (enum wire_kind)kind;
    fields--;
    if (out->kind == WIRE_UNKNOWN || fields < LEAST[out->kind]) return -1;
    switch (out->kind) {
    case WIRE_HELLO: read_hello(&r, fields, &out->as.hello); break;
    case WIRE_KEY:
        out->as.key.incarnation = mp_read_uint(&r, WIRE_END);
        out->as.key.wrapped = mp_read_bytes(&r, &out->as.key.wrapped_size, 64);
        out->as.key.have = mp_read_bool(&r);
        out->as.key.known = mp_read_bool(&r);
        skip_rest(&r, fields, 4);
        break;
    case WIRE_CLAIM:
        out->as.claim.incarnation = mp_read_uint(&r, WIRE_END);
        if (fields > 1) out->as.claim.key = mp_read_bytes(&r, &out->as.claim.key_size, 32);
        skip_rest(&r, fields, 2);
        break;
    case WIRE_PULSE: read_pulse(&r, fields, &out->as.pulse); break;
    case WIRE_ACK: read_ack(&r, fields, &out->as.ack); break;
    case WIRE_ACCOUNT: read_account(&r, fields, &out->as.account, me); break;
    default: read_chunk(&r, fields, &out->as.chunk);
    }
    if (r.failed || r.at != r.end) return -1;
    if (out->kind == WIRE_HELLO) {
        out->as.hello.head = payload + PREFIX;
        out->as.hello.head_size = (uint32_t)(end - PREFIX);
    } else if (out->kind == WIRE_CHUNK) {
        out->as.chunk.data = payload + end;
        out->as.chunk.size = (uint32_t)(size - end);
    }
    return size > end && out->kind != WIRE_CHUNK && out->kind != WIRE_CLAIM ? -1 : 0;
}

/* ------------------------------------------------------------------ writing */

static struct mp_writer begin(uint8_t *out, size_t room, enum wire_kind kind, uint32_t fields) {
    struct mp_writer w = mp_write(out, room);
    static const uint8_t prefix[PREFIX] = {WIRE_VERSION, 0, 0};
    mp_raw(&w, prefix, PREFIX);
    mp_array(&w, fields + 1);
    mp_text(&w, TAGS[kind], strlen(TAGS[kind]));
    return w;
}

static size_t finish(struct mp_writer *w, uint8_t *out) {
    size_t size = (size_t)(w->at - out);
    if (w->failed || size - PREFIX > 0xffff) return 0;
    out[1] = (uint8_t)(size - PREFIX);
    out[2] = (uint8_t)((size - PREFIX) >> 8);
    return size;
}

static void uints(struct mp_writer *w, uint32_t count, const uint64_t *values) {
    for (uint32_t i = 0; i < count; i++) mp_uint(w, values[i]);
}

size_t wire_hello(uint8_t *out, size_t room, const struct wire_hello *m) {
    struct mp_writer w = begin(out, room, WIRE_HELLO, 14);
    mp_text(&w, m->peer, m->peer_size);
    mp_uint(&w, m->incarnation);
    mp_text(&w, STATUS[m->status], strlen(STATUS[m->status]));
    if (m->facts_size) mp_raw(&w, m->facts, m->facts_size);
    else mp_map(&w, 0);
    mp_bytes(&w, m->key, m->key_size);
    mp_bytes(&w, m->identity, m->identity_size);
    mp_bytes(&w, m->signature, m->signature_size);
    mp_bytes(&w, m->answers, m->answers_size);
    mp_array(&w, m->rounds_count);
    uints(&w, m->rounds_count, m->rounds);
    uints(&w, 2, (const uint64_t[]){m->attempt, m->turn});
    mp_bool(&w, m->done);
    mp_text(&w, m->version, m->version_size);
    mp_bytes(&w, m->nonce, m->nonce_size);
    return finish(&w, out);
}

size_t wire_key(uint8_t *out, size_t room, const struct wire_key *m) {
    struct mp_writer w = begin(out, room, WIRE_KEY, 4);
    mp_uint(&w, m->incarnation);
    mp_bytes(&w, m->wrapped, m->wrapped_size);
    mp_bool(&w, m->have);
    mp_bool(&w, m->known);
    return finish(&w, out);
}

size_t wire_claim(uint8_t *out, size_t room, const struct wire_claim *m) {
    struct mp_writer w = begin(out, room, WIRE_CLAIM, 2);
    mp_uint(&w, m->incarnation);
    mp_bytes(&w, m->key, m->key_size);
    return finish(&w, out);
}

size_t wire_pulse(uint8_t *out, size_t room, const struct wire_pulse *m) {
    struct mp_writer w = begin(out, room, WIRE_PULSE, 10);
    uints(&w, 6, (const uint64_t[]){m->incarnation, m->phase, m->tail, m->head, m->round, m->step});
    mp_bool(&w, m->waiting);
    if (m->has_first) mp_uint(&w, m->first);
    else mp_nil(&w);
    mp_nil(&w);
    mp_uint(&w, m->work);
    return finish(&w, out);
}

size_t wire_ack(uint8_t *out, size_t room, const struct wire_ack *m) {
    struct mp_writer w = begin(out, room, WIRE_ACK, 5);
    uints(&w, 4, (const uint64_t[]){m->incarnation, m->phase, m->next, m->limit});
    mp_array(&w, m->missing_count);
    uints(&w, m->missing_count, m->missing);
    return finish(&w, out);
}

size_t wire_chunk_head(uint8_t *out, size_t room, const struct wire_chunk *m) {
    struct mp_writer w = begin(out, room, WIRE_CHUNK, 7);
    uints(&w, 6, (const uint64_t[]){m->incarnation, m->phase, m->sequence, m->first, m->offset, m->total});
    mp_bytes(&w, m->trailer, m->trailer_size);
    return finish(&w, out);
}

static void place(struct mp_writer *w, const uint64_t at[2]) {
    uint32_t count = at[0] == WIRE_END ? 1 : 2;
    mp_array(w, count);
    uints(w, count, at);
}

size_t wire_account(uint8_t *out, size_t room, uint64_t incarnation, uint64_t number, const struct wire_flow *flows,
                    uint32_t count, uint64_t steps,
                    int (*missed)(const void *context, uint32_t flow, uint64_t round, uint64_t step),
                    const void *context) {
    static const uint64_t END[2] = {WIRE_END, 0};
    struct mp_writer w = begin(out, room, WIRE_ACCOUNT, 5);
    uints(&w, 2, (const uint64_t[]){incarnation, number});
    mp_array(&w, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct wire_flow *f = flows + i;
        const uint64_t *closed = f->ended ? END : f->closed;
        uint32_t applied = 0;
        mp_array(&w, 2);
        mp_array(&w, 5);
        place(&w, f->since);
        place(&w, closed);
        for (int pass = 0; pass < 2; pass++) { /* count, then write */
            if (pass) mp_array(&w, applied);
            uint64_t at[2] = {f->since[0], f->since[1]};
            while (at[0] < f->closed[0] || (at[0] == f->closed[0] && at[1] < f->closed[1])) {
                if (!missed(context, i, at[0], at[1])) {
                    if (pass) place(&w, at);
                    else applied++;
                }
                if (++at[1] >= steps) {
                    at[0]++;
                    at[1] = 0;
                }
            }
        }
        mp_array(&w, 0);   /* pending */
        place(&w, closed); /* nothing is held: what is applied stays */
        mp_array(&w, 1);
        mp_text(&w, f->peer, strlen(f->peer));
    }
    mp_bool(&w, 0);
    mp_map(&w, count);
    for (uint32_t i = 0; i < count; i++) {
        mp_text(&w, flows[i].peer, strlen(flows[i].peer));
        mp_uint(&w, flows[i].incarnation);
    }
    return finish(&w, out);
}

size_t wire_signable(uint8_t *out, size_t room, const char *swarm, const uint8_t *head, size_t size) {
    struct mp_reader r = mp_read(head, size);
    struct mp_writer w = mp_write(out, room);
    mp_raw(&w, (const uint8_t *)swarm, strlen(swarm));
    mp_raw(&w, (const uint8_t *)"/", 1);
    uint32_t fields = mp_read_array(&r, 64);
    mp_array(&w, fields);
    for (uint32_t i = 0; i < fields && !r.failed; i++) {
        const uint8_t *start = r.at;
        mp_skip(&r, DEPTH + 1);
        if (i == 7) mp_bytes(&w, NULL, 0); /* the signature, after the kind of message */
        else mp_raw(&w, start, (size_t)(r.at - start));
    }
    return r.failed || w.failed ? 0 : (size_t)(w.at - out);
}

int wire_row_head(uint8_t out[WIRE_ROW_HEAD], uint64_t round, uint64_t step, uint32_t length) {
    memset(out, 0, WIRE_ROW_HEAD);
    struct mp_writer w = mp_write(out + 4, WIRE_ROW_HEAD - 4);
    mp_array(&w, 8);
    mp_uint(&w, round);
    mp_uint(&w, step);
    mp_text(&w, "float32", 7);
    mp_uint(&w, length);
    mp_nil(&w);
    mp_nil(&w);
    mp_uint(&w, 0);
    mp_bool(&w, 0);
    out[0] = (uint8_t)(w.at - out - 4);
    return w.failed ? -1 : 0;
}

int wire_read_row(struct wire_row *out, const uint8_t *message, size_t size) {
    uint32_t text_size;
    memset(out, 0, sizeof *out);
    if (size < WIRE_ROW_HEAD || message[1] || message[2] || message[3]) return -1;
    if (message[0] > WIRE_ROW_HEAD - 4) return -1;
    struct mp_reader r = mp_read(message + 4, message[0]);
    uint32_t fields = mp_read_array(&r, 64);
    out->round = mp_read_uint(&r, ROUND);
    out->step = mp_read_uint(&r, ROUND);
    const char *type = mp_read_text(&r, &text_size, 16);
    out->length = (uint32_t)mp_read_uint(&r, UINT32_MAX / 4);
    if (r.failed || fields < 4 || !text_equals(type, text_size, "float32")) return -1;
    for (uint32_t field = 4; field < fields && !r.failed; field++) {
        if (field == 4 || field == 5) { /* a grid or a weight, which a board does not understand */
            if (!mp_read_nil(&r)) return -1;
        } else if (field == 6) mp_read_uint(&r, 0);
        else if (field == 7 && mp_read_bool(&r)) return -1;
        else if (field > 7) mp_skip(&r, DEPTH);
    }
    if (r.failed || r.at != r.end) return -1;
    if (size - WIRE_ROW_HEAD != (size_t)out->length * 4) return -1;
    out->numbers = message + WIRE_ROW_HEAD;
    return 0;
}
