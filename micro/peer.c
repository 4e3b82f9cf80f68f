#include "peer.h"

#include <math.h>
#include <string.h>

#include "blake3.h"
#include "crypto.h"
#include "text.h"

#define SECOND 1000u
#define PULSE SECOND             /* between heartbeats */
#define GRACE (5 * SECOND)      /* within which a neighbour may come back after its will */
#define OUTAGE (600 * SECOND)     /* within which the broker must be back */
#define SILENCE (45 * SECOND)    /* after which a neighbour has gone, which sends heartbeats 10 s apart while it waits */
#define DEAFNESS (15 * SECOND)   /* after which the connection is lost, of which nothing at all has come */
#define PING (7 * SECOND)        /* after which the broker is asked for something */
#define QUARREL (3 * SECOND)     /* within which a neighbour of another experiment can notice that as well */
#define REPORT 4                 /* gossip steps between accounts */
#define REMEMBERED 60            /* gossip steps of which an account states whether they were applied */
#define LEAD 2                   /* chunks that a neighbour may be ahead */

static uint64_t now(struct micro_peer *p) { return p->platform.milliseconds(p->platform.context); }

/* Write a sentence, in which NAME stands between two texts. */
static const char *spell(struct micro_peer *p, const char *before, const char *name, const char *after) {
    size_t at = 0, room = sizeof p->sentence - 1;
    const char *parts[3] = {before, name, after};
    for (int i = 0; i < 3; i++)
        for (const char *c = parts[i]; *c && at < room; c++) p->sentence[at++] = *c;
    p->sentence[at] = 0;
    return p->sentence;
}

/* End with a sentence. */
static int fail(struct micro_peer *p, const char *before, const char *name, const char *after) {
    if (p->error == NULL) p->error = spell(p, before, name, after);
    return -1;
}

static int lost(struct micro_peer *p) { return fail(p, "the connection to the broker is lost; start the board again", "", ""); }

static void note(struct micro_peer *p, const char *sentence) {
    if (p->platform.note != NULL) p->platform.note(p->platform.context, sentence);
}

/* ------------------------------------------------------------------ topics and signatures */

/* Write a place below the topic of a peer; the configuration bounds all parts. */
static char *topic(struct micro_peer *p, char *out, const char *owner, const char *place, const char *sender) {
    size_t at = text_add(out, 0, MICRO_PREFIX "p2pfl/v1/");
    at = text_add(out, at, p->c->swarm);
    at = text_add(out, at, "/peer/");
    at = text_add(out, at, owner);
    at = text_add(out, at, "/");
    at = text_add(out, at, place);
    text_add(out, at, sender);
    return out;
}

/* Sign or verify DOMAIN and a message that lies after `room` bytes of a buffer. */
static uint8_t *framed(uint8_t *message, const char *domain) {
    size_t size = strlen(domain) + 1;
    memcpy(message - size, domain, size);
    return message - size;
}

static const char HELLO[] = "p2pfl/v1/hello", ROW[] = "p2pfl/v1/row";

/* What is signed of a row: the domain, SWARM/PEER/INCARNATION/, the first 64 bytes, the chain of its only piece. */
static size_t row_statement(struct micro_peer *p, uint8_t out[256], const char *peer, uint64_t incarnation,
                            const uint8_t *row) {
    static const uint8_t NO_PIECES[32];
    struct blake3 h;
    size_t at = sizeof ROW; /* with the zero that ends a domain */
    memcpy(out, ROW, at);
    at = text_add((char *)out, at, p->c->swarm);
    at = text_add((char *)out, at, "/");
    at = text_add((char *)out, at, peer);
    at = text_add((char *)out, at, "/");
    at = text_add_number((char *)out, at, incarnation, 16);
    at = text_add((char *)out, at, "/");
    memcpy(out + at, row, WIRE_ROW_HEAD);
    blake3_begin(&h, NULL);
    blake3_update(&h, row, MICRO_ROW);
    blake3_end(&h, out + at + WIRE_ROW_HEAD, 32);
    blake3_begin(&h, NULL);
    blake3_update(&h, NO_PIECES, 32);
    blake3_update(&h, out + at + WIRE_ROW_HEAD, 32);
    blake3_end(&h, out + at + WIRE_ROW_HEAD, 32);
    return at + WIRE_ROW_HEAD + 32;
}

/* ------------------------------------------------------------------ sending */

static int publish(struct micro_peer *p, const char *where, uint8_t *payload, size_t size, int retain) {
    if (mqtt_publish(&p->mqtt, where, payload, size, retain) != 0) p->broken = 1; /* the protocol repeats it */
    return 0;
}

/* Write an announcement into a buffer after its headroom; return its size. */
static size_t hello(struct micro_peer *p, uint8_t *out, size_t room, enum wire_status status, uint64_t turn, int done) {
    uint8_t signature[64] = {0};
    const struct micro_config *c = p->c;
    struct wire_hello m = {.peer = c->name, .peer_size = (uint32_t)strlen(c->name), .incarnation = p->incarnation,
                           .status = status, .key = p->exchange, .key_size = 32, .identity = p->identity,
                           .identity_size = 32, .signature = signature, .nonce = p->own.nonce, .nonce_size = 16,
                           .turn = turn, .done = done, .version = ""};
    if (status == WIRE_UP) {
        m.facts = c->facts;
        m.facts_size = c->facts_size;
        m.version = c->version;
        m.version_size = (uint32_t)strlen(c->version);
    }
    /* the signed bytes have an empty signature; they are written into the same place first */
    size_t prefix = 3, frame = sizeof HELLO + strlen(c->swarm) + 1;
    uint8_t *at = out + frame, *head = at + prefix;
    size_t size = wire_hello(at, room - frame, &m);
    if (size == 0) return 0;
    uint8_t *signable = head - strlen(c->swarm) - 1;
    memcpy(signable, c->swarm, strlen(c->swarm));
    signable[strlen(c->swarm)] = '/';
    signable = framed(signable, HELLO);
    crypto_sign(signature, c->identity, signable, (size_t)(at + size - signable));
    m.signature_size = 64;
    return wire_hello(out, room, &m);
}

static int announce(struct micro_peer *p, enum wire_status status, int done) {
    char where[MICRO_TOPIC];
    uint8_t *payload = p->work.out + MQTT_HEADROOM;
    size_t size = hello(p, payload, sizeof p->work.out - MQTT_HEADROOM, status, p->turn, done);
    if (size == 0) return fail(p, "the facts of the experiment do not fit into an announcement; flash again", "", "");
    return publish(p, topic(p, where, p->c->name, "state", ""), payload, size, 1);
}

/* Seal and publish a message that lies after the headroom and SEAL_HEAD of a buffer. */
static int send_sealed(struct micro_peer *p, uint8_t *buffer, size_t size, const char *where, int only) {
    size_t sealed;
    uint8_t *payload = seal(buffer + MQTT_HEADROOM, size, &sealed, SEAL_CONTROL, p->number++, &p->own, p->edges, only);
    return publish(p, where, payload, sealed, 0);
}

static int is_present(struct micro_peer *p, int i) {
    struct micro_other *n = p->others + i;
    if (n->lost_since && now(p) - n->lost_since > GRACE) n->gone = 1;
    if (p->polled - n->heard > SILENCE) n->gone = 1; /* its goodbye may have come while there was no connection */
    return p->edges[i].have && p->edges[i].known && !n->gone;
}

static int all_acknowledged(struct micro_peer *p) {
    for (int i = 0; i < MICRO_NEIGHBOURS; i++)
        if (is_present(p, i) && p->others[i].acknowledged < p->head) return 0;
    return 1;
}

static int pulse(struct micro_peer *p) {
    char where[MICRO_TOPIC];
    uint8_t *message = p->control + MQTT_HEADROOM + SEAL_HEAD;
    struct wire_pulse m = {.incarnation = p->incarnation, .head = p->head, .round = p->round, .step = p->step,
                           .waiting = p->waiting, .has_first = p->begun};
    m.tail = all_acknowledged(p) ? p->head : p->head - 1;
    p->beat = now(p);
    return send_sealed(p, p->control, wire_pulse(message, 256, &m), topic(p, where, p->c->name, "pub/0", ""), -1);
}

static int acknowledge(struct micro_peer *p, int i) {
    char where[MICRO_TOPIC];
    struct micro_other *n = p->others + i;
    struct wire_ack m = {.incarnation = n->incarnation, .next = n->next, .limit = n->next + LEAD};
    if (n->head > n->next) { /* one that was not kept, or was lost */
        m.missing[0] = n->next;
        m.missing_count = 1;
    }
    uint8_t *message = p->control + MQTT_HEADROOM + SEAL_HEAD;
    return send_sealed(p, p->control, wire_ack(message, 256, &m),
                       topic(p, where, p->c->neighbours[i].name, "in/", p->c->name), i);
}

static int hand_over(struct micro_peer *p, int i) {
    char where[MICRO_TOPIC];
    uint8_t wrapped[48], *payload = p->control + MQTT_HEADROOM;
    struct seal_edge *e = p->edges + i;
    struct wire_key m = {.incarnation = p->incarnation, .wrapped = wrapped, .wrapped_size = 48, .have = e->have,
                         .known = e->known};
    seal_wrap(wrapped, e, &p->own);
    return publish(p, topic(p, where, p->c->neighbours[i].name, "in/", p->c->name), payload,
                   wire_key(payload, 256, &m), 0);
}

/* Send the released model, which is the last chunk of the stream, to one neighbour or to all. */
static int send_model(struct micro_peer *p, int only) {
    char where[MICRO_TOPIC];
    uint8_t statement[256], signature[WIRE_SIGNATURE] = {0}, *message = p->work.out + MQTT_HEADROOM + SEAL_HEAD, *payload;
    uint64_t sequence = p->head - 1;
    struct wire_chunk m = {.incarnation = p->incarnation, .sequence = sequence, .first = sequence, .total = MICRO_ROW,
                           .trailer = signature, .trailer_size = WIRE_SIGNATURE};
    size_t head = wire_chunk_head(message, MICRO_CHUNK_HEAD, &m), sealed;
    uint8_t *row = message + head;
    if (head == 0 || wire_row_head(row, p->round, p->step, MICRO_PARAMETERS) != 0)
        return fail(p, "the number of the round is too large for a message", "", "");
    memcpy(row + WIRE_ROW_HEAD, p->released, sizeof p->released);
    size_t size = row_statement(p, statement, p->c->name, p->incarnation, row);
    crypto_sign(signature, p->c->identity, statement, size);
    wire_chunk_head(message, MICRO_CHUNK_HEAD, &m); /* again, with its signature */
    payload = seal(p->work.out + MQTT_HEADROOM, head + MICRO_ROW, &sealed, 0, sequence, &p->own, p->edges, only);
    if (only < 0) topic(p, where, p->c->name, "pub/0", "");
    else topic(p, where, p->c->neighbours[only].name, "in/", p->c->name);
    return publish(p, where, payload, sealed, 0);
}

static uint64_t flat_step(const struct micro_peer *p, uint64_t round, uint64_t step) {
    return round * p->c->gossip_steps + step;
}

static int missed(const void *context, uint32_t i, uint64_t round, uint64_t step) {
    const struct micro_peer *p = context;
    uint64_t ago = flat_step(p, p->round, p->step) - flat_step(p, round, step); /* bit 0 is the present step */
    return ago > 63 || (p->others[i].missed >> ago & 1);
}

/* State which models have been added, so that both ends of an edge agree on what it has moved. */
static int report(struct micro_peer *p) {
    char where[MICRO_TOPIC];
    struct wire_flow flows[MICRO_NEIGHBOURS];
    uint64_t here = flat_step(p, p->round, p->step), steps = p->c->gossip_steps;
    for (int i = 0; i < MICRO_NEIGHBOURS; i++) {
        struct micro_other *n = p->others + i;
        struct wire_flow f = {.peer = p->c->neighbours[i].name, .incarnation = n->incarnation,
                              .since = {n->known[0], n->known[1]}, .closed = {p->round, p->step}, .ended = p->finished};
        if (here > REMEMBERED && n->known[0] != WIRE_END && flat_step(p, f.since[0], f.since[1]) < here - REMEMBERED) {
            f.since[0] = (here - REMEMBERED) / steps;
            f.since[1] = (here - REMEMBERED) % steps;
        }
        flows[i] = f;
    }
    uint8_t *message = p->work.out + MQTT_HEADROOM + SEAL_HEAD;
    size_t room = sizeof p->work.out - MQTT_HEADROOM - SEAL_HEAD - SEAL_TAG;
    size_t size = wire_account(message, room, p->incarnation, ++p->account, flows, MICRO_NEIGHBOURS, steps, missed, p);
    if (size == 0) return fail(p, "an account does not fit into a message", "", "");
    return send_sealed(p, p->work.out, size, topic(p, where, p->c->name, "account", ""), -1);
}

/* ------------------------------------------------------------------ receiving */

static int position(const uint64_t a[2], const struct micro_peer *p) {
    if (a[0] != p->round) return a[0] < p->round ? -1 : 1;
    return a[1] < p->step ? -1 : a[1] > p->step;
}

static float mixed(const struct micro_peer *p, int i, const uint8_t *numbers, size_t k) {
    float theirs, moved;
    memcpy(&theirs, numbers + 4 * k, 4);
    moved = theirs - p->released[k];
    moved *= p->c->neighbours[i].weight;
    return p->model[k] + moved;
}

/* Add a model, unless it is so large that a sum would be infinite: then it is missing. */
static void add_model(struct micro_peer *p, int i, const uint8_t *numbers) {
    for (size_t k = 0; k < MICRO_PARAMETERS; k++)
        if (!isfinite(mixed(p, i, numbers, k))) {
            note(p, spell(p, "the model of ", p->c->neighbours[i].name, " is too large to be added; it is left out"));
            p->others[i].later = 1;
            return;
        }
    for (size_t k = 0; k < MICRO_PARAMETERS; k++) p->model[k] = mixed(p, i, numbers, k);
    p->others[i].got = 1;
}

static int is_finite(const uint8_t *numbers) {
    for (size_t k = 0; k < MICRO_PARAMETERS; k++) {
        float value;
        memcpy(&value, numbers + 4 * k, 4);
        if (!isfinite(value)) return 0;
    }
    return 1;
}

/* Take a model that has arrived, unless there is no place for it yet. */
static int receive_chunk(struct micro_peer *p, int i, const struct wire_chunk *m) {
    struct micro_other *n = p->others + i;
    struct wire_row row;
    uint8_t statement[256];
    if (m->incarnation != n->incarnation) return 0;
    if (m->sequence >= n->head) n->head = m->sequence + 1;
    if (m->sequence != n->next) return 0; /* doubled, or out of turn: it is asked for */
    int fine = m->offset == 0 && m->total == m->size && m->first == m->sequence && m->size == MICRO_ROW &&
               m->trailer_size == WIRE_SIGNATURE;
    if (fine) fine = wire_read_row(&row, m->data, m->size) == 0 && row.length == MICRO_PARAMETERS;
    if (fine) {
        size_t size = row_statement(p, statement, p->c->neighbours[i].name, n->incarnation, m->data);
        fine = crypto_verify(n->identity, m->trailer, statement, size) == 0;
    }
    if (fine) fine = is_finite(row.numbers) && row.round < (uint64_t)p->c->rounds + 8 && row.step < p->c->gossip_steps;
    if (fine) {
        uint64_t at[2] = {row.round, row.step};
        int place = position(at, p);
        if (place == 0 && p->mixing && !n->got) add_model(p, i, row.numbers);
        else if (place > 0 || (place == 0 && !p->mixing)) {
            n->later = 1; /* its models come in order, so that of this gossip step never will */
            if (p->ahead_from >= 0) return 0; /* no place: it is asked for when its turn comes */
            memcpy(p->ahead, row.numbers, sizeof p->ahead);
            memcpy(p->ahead_at, at, sizeof at);
            p->ahead_from = i;
        }
    } else note(p, "a neighbour sent a message that is no model of this run; it is left out");
    n->next++;
    return acknowledge(p, i);
}

static int receive_sealed(struct micro_peer *p, int i, const char *place, uint8_t *payload, size_t size) {
    struct micro_other *n = p->others + i;
    struct wire_message m;
    uint32_t stream;
    uint64_t sequence, *last;
    uint8_t *message = seal_open(payload, size, &size, &stream, &sequence, p->edges + i);
    if (message == NULL || wire_decode(&m, message, size, p->c->name) != 0) return 0;
    if (m.kind == WIRE_CHUNK) {
        if (stream != 0 || m.as.chunk.phase != 0 || m.as.chunk.sequence != sequence) return 0;
        return receive_chunk(p, i, &m.as.chunk);
    }
    if (stream != SEAL_CONTROL || (m.kind != WIRE_PULSE && m.kind != WIRE_ACK && m.kind != WIRE_ACCOUNT)) return 0;
    last = n->last + (m.kind - WIRE_PULSE);
    if (sequence < *last || sequence >= UINT64_C(1) << 48) return 0; /* a replay */
    *last = sequence + 1;
    n->lost_since = 0;
    n->heard = p->polled;
    if (m.kind == WIRE_PULSE && m.as.pulse.incarnation == n->incarnation && m.as.pulse.phase == 0) {
        if (m.as.pulse.tail > m.as.pulse.head || m.as.pulse.round > (uint64_t)p->c->rounds + 8) return 0;
        if (!p->begun && m.as.pulse.has_first && (m.as.pulse.round || m.as.pulse.step))
            return fail(p, "", p->c->neighbours[i].name, " has begun without this board, which cannot come late; begin a new run");
        n->head = m.as.pulse.head;
        n->at[0] = m.as.pulse.round;
        n->at[1] = m.as.pulse.step;
        if (m.as.pulse.tail > n->next) n->next = m.as.pulse.tail; /* it has given up what came before */
        if (m.as.pulse.tail < m.as.pulse.head) return acknowledge(p, i);
    } else if (m.kind == WIRE_ACK && m.as.ack.incarnation == p->incarnation && m.as.ack.phase == 0) {
        if (m.as.ack.next > p->head) return 0;
        if (m.as.ack.next > n->acknowledged) n->acknowledged = m.as.ack.next;
        for (uint32_t j = 0; j < m.as.ack.missing_count; j++)
            if (m.as.ack.missing[j] + 1 == p->head && n->acknowledged < p->head) return send_model(p, i);
    } else if (m.kind == WIRE_ACCOUNT && m.as.account.incarnation == n->incarnation && m.as.account.stated &&
               strcmp(place, "account") == 0) {
        if (m.as.account.ended) n->ended = 1;
        memcpy(n->known, m.as.account.settled, sizeof n->known);
    }
    return 0;
}

/* Whether the owner of the key in an announcement has signed it, in this swarm. */
static int is_signed(struct micro_peer *p, const struct wire_hello *m) {
    uint8_t *signable = p->work.out + sizeof HELLO;
    if (m->identity_size != 32 || m->signature_size != 64 || m->key_size != 32 || m->nonce_size != 16) return 0;
    size_t size = wire_signable(signable, sizeof p->work.out - sizeof HELLO, p->c->swarm, m->head, m->head_size);
    return size != 0 &&
           crypto_verify(m->identity, m->signature, framed(signable, HELLO), size + sizeof HELLO) == 0;
}

static int has_same_key(struct micro_peer *p, int i, const struct wire_hello *m) {
    return memcmp(p->others[i].identity, m->identity, 32) == 0;
}

/* Whether the key in an announcement may be that of a neighbour: of the roster, or the first that has shown to be. */
static int is_trusted(struct micro_peer *p, int i, const struct wire_hello *m) {
    const uint8_t *pinned = p->c->neighbours[i].key;
    if (!is_signed(p, m) || (pinned != NULL && memcmp(pinned, m->identity, 32) != 0)) return 0;
    return !p->others[i].known_identity || has_same_key(p, i, m);
}

static int meet(struct micro_peer *p, int i, const struct wire_hello *m) {
    struct micro_other *n = p->others + i;
    int same = m->facts_size == p->c->facts_size && memcmp(m->facts, p->c->facts, m->facts_size) == 0;
    int known = n->known_identity;
    if (!same && p->begun) return 0;
    if (seal_meet(p->edges + i, &p->own, m->incarnation, m->key, m->nonce) != 0) return 0;
    memset(n, 0, sizeof *n);
    memcpy(n->identity, m->identity, 32);
    n->known_identity = known;
    n->incarnation = m->incarnation;
    n->turn = m->turn;
    n->acknowledged = p->head; /* what was sent before was for an earlier incarnation */
    n->missed = ~UINT64_C(0);  /* and so was what was added */
    n->gone = p->begun;        /* a neighbour that has lost its state takes no further part with a board */
    n->differs = !same;        /* it gets this board's key, so that it can end with the reason as well */
    n->seen = now(p);
    n->heard = p->polled;
    if (p->ahead_from == i) p->ahead_from = -1;
    return hand_over(p, i);
}

static const char OTHER_RUN[] = " runs another experiment; flash the board with the file of all peers";

static int receive_state(struct micro_peer *p, int i, const struct wire_hello *m) {
    struct micro_other *n = p->others + i;
    if (!is_trusted(p, i, m)) return 0;
    if (m->status == WIRE_UP) {
        /* a stranger's number counts for nothing against a key that shows to be alive */
        int usurped = !n->known_identity && !has_same_key(p, i, m);
        if (!p->edges[i].met || m->incarnation > n->incarnation || usurped) return meet(p, i, m);
        if (m->incarnation == n->incarnation && m->turn > n->turn) {
            n->turn = m->turn;
            n->lost_since = 0;
        }
    } else if (m->incarnation == n->incarnation && m->status == WIRE_LEFT) n->gone = 1;
    else if (m->incarnation == n->incarnation && n->lost_since == 0) n->lost_since = now(p);
    return 0;
}

static int receive_own_state(struct micro_peer *p, const struct wire_hello *m) {
    if (!is_signed(p, m) || memcmp(m->identity, p->identity, 32) != 0) return 0;
    if (m->incarnation > p->incarnation)
        return fail(p, "another start of ", p->c->name, " has a larger number; set the clock, or stop the other one");
    if (m->incarnation == p->incarnation && m->status == WIRE_DEAD && p->announced) {
        p->turn++; /* the broker took this peer for lost */
        return announce(p, WIRE_UP, 0);
    }
    return 0;
}

static int neighbour(struct micro_peer *p, const char *name, size_t size) {
    for (int i = 0; i < MICRO_NEIGHBOURS; i++)
        if (text_equals(name, size, p->c->neighbours[i].name)) return i;
    return -1;
}

static int receive(struct micro_peer *p, struct mqtt_message *got) {
    char root[MICRO_TOPIC];
    struct wire_message m;
    size_t start = strlen(topic(p, root, "", "", "")) - 1, owner = 0; /* without the name and the last slash */
    if (got->topic_size <= start || memcmp(got->topic, root, start) != 0 || got->size == 0) return 0;
    const char *at = got->topic + start, *end = got->topic + got->topic_size;
    while (at + owner < end && at[owner] != '/') owner++;
    if (at + owner >= end) return 0;
    const char *place = at + owner + 1;
    size_t size = (size_t)(end - place);
    int mine = text_equals(at, owner, p->c->name), i = neighbour(p, at, owner), plain = got->payload[0] == WIRE_VERSION;
    if (text_equals(place, size, "state")) {
        if (!plain && i >= 0) p->others[i].unreadable = 1;
        if (wire_decode(&m, got->payload, got->size, NULL) != 0 || m.kind != WIRE_HELLO) return 0;
        if (m.as.hello.peer_size != owner || memcmp(m.as.hello.peer, at, owner) != 0) return 0;
        if (mine) return receive_own_state(p, &m.as.hello);
        return i < 0 ? 0 : receive_state(p, i, &m.as.hello);
    }
    if (mine && size > 3 && memcmp(place, "in/", 3) == 0) {
        i = neighbour(p, place + 3, size - 3);
        if (i >= 0 && !plain) return receive_sealed(p, i, "in", got->payload, got->size);
        if (wire_decode(&m, got->payload, got->size, NULL) != 0) return 0;
        if (m.kind == WIRE_CLAIM && text_equals(place + 3, size - 3, p->c->name) &&
            m.as.claim.incarnation == p->incarnation)
            p->echoed = 1;
        if (m.kind != WIRE_KEY || i < 0 || !p->edges[i].met || m.as.key.wrapped_size != 48) return 0;
        if (m.as.key.incarnation != p->others[i].incarnation) return 0;
        const struct wire_key *k = &m.as.key;
        if (seal_unwrap(p->edges + i, &p->own, k->wrapped, k->have, k->known) != 0) return 0;
        p->others[i].known_identity = 1; /* it has the private key, so its name is its own */
        return k->have && k->known ? 0 : hand_over(p, i);
    }
    if (i < 0 || plain) return 0;
    if (text_equals(place, size, "pub/0")) return receive_sealed(p, i, "pub", got->payload, got->size);
    return text_equals(place, size, "account") ? receive_sealed(p, i, "account", got->payload, got->size) : 0;
}

/* ------------------------------------------------------------------ waiting */

/* Show that this peer is alive; also while it trains, when only `control` is free. */
static void beat(void *context) {
    struct micro_peer *p = context;
    if (p->error == NULL && p->announced && now(p) - p->beat >= PULSE) (void)pulse(p);
}

/* Wait up to half a minute until the broker has answered; what else comes is handled. */
static int answered(struct micro_peer *p, const int *connected, uint16_t subscriptions) {
    uint64_t since = now(p);
    struct mqtt_message got;
    while (!*connected || p->mqtt.subscribed < subscriptions) {
        int came = now(p) - since > 30 * SECOND ? -1 : mqtt_poll(&p->mqtt, &got, 100);
        if (came < 0 || p->mqtt.refused || (came > 0 && receive(p, &got) != 0)) return -1;
    }
    return 0;
}

/* Open the session with the broker, and subscribe to all that this peer must receive; return -1 if that failed. */
static int open_session(struct micro_peer *p) {
    static const char *const PLACES[] = {"state", "account", "pub/0"};
    char where[MICRO_TOPIC], client[MICRO_SWARM + MICRO_NAME + 20];
    const struct micro_config *c = p->c;
    size_t at = text_add(client, 0, c->swarm);
    at = text_add(client, at, "-");
    at = text_add(client, at, c->name);
    at = text_add(client, at, "-");
    text_add_number(client, at, p->incarnation, 16);
    uint8_t *will = p->work.out + 256;
    size_t size = hello(p, will, sizeof p->work.out - 256, WIRE_DEAD, p->turn, 0);
    topic(p, where, c->name, "state", "");
    if (mqtt_connect(&p->mqtt, client, p->platform.user, p->platform.password, where, will, size) != 0) return -1;
    if (answered(p, &p->mqtt.connected, 0) != 0) return -1;
    if (mqtt_subscribe(&p->mqtt, where) != 0) return -1;
    if (mqtt_subscribe(&p->mqtt, topic(p, where, c->name, "in/+", "")) != 0) return -1;
    for (int i = 0; i < 3 * MICRO_NEIGHBOURS; i++)
        if (mqtt_subscribe(&p->mqtt, topic(p, where, c->neighbours[i / 3].name, PLACES[i % 3], "")) != 0) return -1;
    return answered(p, &p->mqtt.connected, 2 + 3 * MICRO_NEIGHBOURS);
}

/* Come back after a lost connection, with all that this peer knows; the others ask for what they lack. */
static int come_back(struct micro_peer *p) {
    uint64_t since = now(p);
    while (p->platform.reconnect != NULL && p->error == NULL && now(p) - since < OUTAGE) {
        if (p->platform.reconnect(p->platform.context) != 0 || open_session(p) != 0) continue;
        p->broken = 0;
        p->quiet = 0;
        for (int i = 0; i < MICRO_NEIGHBOURS; i++) p->others[i].heard = p->polled;
        p->turn++; /* the broker has published the will */
        return p->announced ? announce(p, WIRE_UP, 0) | pulse(p) : 0;
    }
    return lost(p);
}

/* Receive what has come within `wait` milliseconds, and send what is due. */
static int pump(struct micro_peer *p, uint32_t wait) {
    struct mqtt_message got;
    uint64_t since = now(p);
    int came = p->broken ? -1 : mqtt_poll(&p->mqtt, &got, wait);
    uint64_t listened = came == 0 ? now(p) - since : 0; /* without anything */
    p->quiet = p->mqtt.heard ? 0 : p->quiet + listened;
    p->mqtt.heard = 0;
    if (p->quiet > DEAFNESS) came = -1; /* the network is lost in silence, and no neighbour is to be blamed */
    else if (p->quiet > PING && p->quiet - listened <= PING && mqtt_ping(&p->mqtt) != 0) came = -1;
    p->polled += listened;
    if (came < 0) return come_back(p);
    if (came > 0 && receive(p, &got) != 0) return -1;
    if (p->mqtt.refused) return fail(p, "the broker refuses this board; check its login and its rights", "", "");
    for (int i = 0; i < MICRO_NEIGHBOURS; i++)
        if (p->others[i].differs && p->edges[i].have && now(p) - p->others[i].seen > QUARREL)
            return fail(p, "", p->c->neighbours[i].name, OTHER_RUN);
    int due = p->announced && now(p) - p->beat >= PULSE;
    beat(p);
    if (due && !p->begun && announce(p, WIRE_UP, 0) != 0) return -1; /* a neighbour may have missed it */
    for (int i = 0; due && i < MICRO_NEIGHBOURS; i++)
        if (p->edges[i].met && !(p->edges[i].have && p->edges[i].known) && hand_over(p, i) != 0) return -1;
    if (due && p->finished && report(p) != 0) return -1;
    return p->error == NULL ? 0 : -1;
}

#define WAIT(p, condition, seconds, since)                                                  \
    while (!(condition)) {                                                                  \
        if (now(p) - (since) > (uint64_t)(seconds) * SECOND) break;                         \
        if (pump(p, 100) != 0) return -1;                                                   \
    }

static int join(struct micro_peer *p) {
    char where[MICRO_TOPIC];
    if (open_session(p) != 0)
        return fail(p, "the broker does not let this board in; check its address, its login and its rights", "", "");
    /* once its own message is back, what the broker retains has come as well */
    uint64_t since = now(p);
    struct wire_claim claim = {p->incarnation, p->exchange, 32};
    uint8_t *payload = p->control + MQTT_HEADROOM;
    publish(p, topic(p, where, p->c->name, "in/", p->c->name), payload, wire_claim(payload, 256, &claim), 0);
    WAIT(p, p->echoed, 30, since)
    if (!p->echoed) return fail(p, "the broker did not return this board's own message; check its rights", "", "");
    if (announce(p, WIRE_UP, 0) != 0) return -1;
    p->announced = 1;
    return pulse(p);
}

/* Whether a neighbour has come, and its heartbeat has shown that it has not begun without this board. */
static int has_come(struct micro_peer *p, int i) {
    return is_present(p, i) && p->others[i].last[0] && !p->others[i].differs;
}

static int gathered(struct micro_peer *p) {
    for (int i = 0; i < MICRO_NEIGHBOURS; i++)
        if (!has_come(p, i)) return 0;
    return 1;
}

/* ------------------------------------------------------------------ rounds */

/* Whether a neighbour has gone on, and all that it still has for this board has come: its model never will. */
static int has_passed(struct micro_peer *p, int i) {
    return p->others[i].later || (position(p->others[i].at, p) > 0 && p->others[i].next >= p->others[i].head);
}

static int complete(struct micro_peer *p) {
    for (int i = 0; i < MICRO_NEIGHBOURS; i++)
        if (!p->others[i].got && is_present(p, i) && !has_passed(p, i)) return 0;
    return 1;
}

/* Release the model, and add what the neighbours' models differ from it. */
static int gossip(struct micro_peer *p) {
    for (int i = 0; i < MICRO_NEIGHBOURS; i++) p->others[i].got = 0;
    p->head++;
    p->mixing = p->waiting = 1;
    if (send_model(p, -1) != 0) return -1;
    for (int i = 0; i < MICRO_NEIGHBOURS; i++) {
        struct micro_other *n = p->others + i;
        n->later = p->ahead_from == i && position(p->ahead_at, p) > 0; /* what waits is of a later one still */
        if (p->ahead_from == i && !n->later) {
            if (position(p->ahead_at, p) == 0) add_model(p, i, (const uint8_t *)p->ahead);
            p->ahead_from = -1;
        }
        if (!n->got && n->head > n->next && is_present(p, i) && acknowledge(p, i) != 0) return -1;
    }
    uint64_t since = now(p);
    WAIT(p, complete(p), (uint64_t)p->c->patience * (MICRO_NEIGHBOURS + 1), since)
    for (int i = 0; i < MICRO_NEIGHBOURS; i++) {
        if (!p->others[i].got) note(p, "the model of a neighbour is missing in a gossip step");
        p->others[i].missed = (p->others[i].missed & ~UINT64_C(1)) | (uint64_t)!p->others[i].got;
    }
    /* the next release takes the place of this one, so all must have it */
    if (!all_acknowledged(p) && pulse(p) != 0) return -1;
    since = now(p);
    WAIT(p, all_acknowledged(p), p->c->patience, since)
    for (int i = 0; i < MICRO_NEIGHBOURS; i++) p->others[i].acknowledged = p->head;
    p->mixing = p->waiting = 0;
    if (++p->step == p->c->gossip_steps) {
        p->step = 0;
        p->round++;
    }
    for (int i = 0; i < MICRO_NEIGHBOURS; i++) p->others[i].missed <<= 1;
    return flat_step(p, p->round, p->step) % REPORT == 0 ? report(p) : 0;
}

static int play(struct micro_peer *p) {
    const struct micro_config *c = p->c;
    while (p->round < c->rounds) {
        uint32_t round = (uint32_t)p->round;
        memcpy(p->released, p->model, sizeof p->model);
        mlp_train(c, p->model, round, &p->mlp, beat, p);
        if (p->error != NULL) return -1;
        if (!is_finite((const uint8_t *)p->model))
            return fail(p, "the model is not finite after training; lower learning.rate, or leave out a neighbour whose model is far too large", "", "");
        for (uint32_t step = 0; step < c->gossip_steps; step++) {
            if (step || c->adapt_first) memcpy(p->released, p->model, sizeof p->model);
            if (gossip(p) != 0) return -1;
        }
        if (p->platform.store(p->platform.context, round + 1, p->model, MICRO_PARAMETERS) != 0)
            return fail(p, "the model cannot be kept; check the flash", "", "");
    }
    return 0;
}

static int all_ended(struct micro_peer *p) {
    for (int i = 0; i < MICRO_NEIGHBOURS; i++)
        if (is_present(p, i) && !p->others[i].ended) return 0;
    return 1;
}

static int leave(struct micro_peer *p) {
    char where[MICRO_TOPIC];
    uint64_t since = now(p);
    p->finished = 1;
    if (report(p) != 0) return -1;
    WAIT(p, all_ended(p), (uint64_t)p->c->patience * (MICRO_NEIGHBOURS + 1), since)
    if (report(p) != 0 || announce(p, WIRE_LEFT, 1) != 0) return -1;
    if (publish(p, topic(p, where, p->c->name, "state", ""), p->control + MQTT_HEADROOM, 0, 1) != 0) return -1;
    (void)mqtt_disconnect(&p->mqtt);
    return 0;
}

int micro_run(struct micro_peer *p, const struct micro_config *c, const struct micro_platform *platform) {
    memset(p, 0, sizeof *p);
    p->c = c;
    p->platform = *platform;
    p->ahead_from = -1;
    p->mlp.gradient = p->work.gradient;
    p->incarnation = platform->incarnation(platform->context);
    platform->random(platform->context, p->own.exchange, 32);
    platform->random(platform->context, p->own.nonce, 16);
    platform->random(platform->context, p->own.sender, 32);
    p->own.name = c->name;
    p->own.run = c->run;
    p->own.incarnation = p->incarnation;
    crypto_exchange_public(p->exchange, p->own.exchange);
    crypto_sign_public(p->identity, c->identity);
    for (int i = 0; i < MICRO_NEIGHBOURS; i++) p->edges[i].name = c->neighbours[i].name;
    memcpy(p->model, c->start, sizeof p->model);
    mqtt_begin(&p->mqtt, platform->io, p->in, sizeof p->in);
    if (join(p) != 0) return -1;
    uint64_t since = now(p);
    WAIT(p, gathered(p), c->gather, since)
    for (int i = 0; i < MICRO_NEIGHBOURS; i++) {
        const char *why = p->others[i].differs      ? OTHER_RUN
                          : p->others[i].unreadable ? " has another version of the wire format; install one version"
                                                    : " did not come in time; start it, or raise transport.gather";
        if (!has_come(p, i)) return fail(p, "", c->neighbours[i].name, why);
    }
    p->begun = 1;
    if (pulse(p) != 0 || play(p) != 0) return -1;
    return leave(p);
}
