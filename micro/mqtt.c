#include "mqtt.h"

#include <string.h>

enum { CONNECT = 0x10, CONNACK = 0x20, PUBLISH = 0x30, PUBACK = 0x40, SUBSCRIBE = 0x82, SUBACK = 0x90, PINGREQ = 0xc0 };
enum { DISCONNECT = 0xe0 };

void mqtt_begin(struct mqtt *m, struct mqtt_io io, uint8_t *buffer, size_t room) {
    memset(m, 0, sizeof *m);
    m->io = io;
    m->buffer = buffer;
    m->room = room;
}

static uint8_t *text(uint8_t *at, const void *data, size_t size) {
    at[0] = (uint8_t)(size >> 8);
    at[1] = (uint8_t)size;
    memcpy(at + 2, data, size);
    return at + 2 + size;
}

/* Write kind and length of a packet; return their bytes. */
static size_t head(uint8_t out[5], uint8_t kind, size_t size) {
    size_t at = 0;
    out[at++] = kind;
    do {
        uint8_t seven = size & 0x7f;
        size >>= 7;
        out[at++] = size ? seven | 0x80 : seven;
    } while (size);
    return at;
}

static uint16_t next_packet(struct mqtt *m) {
    if (++m->packet == 0) m->packet = 1;
    return m->packet;
}

static int send_packet(struct mqtt *m, uint8_t kind, const uint8_t *body, size_t size) {
    uint8_t start[5];
    if (m->io.send(m->io.context, start, head(start, kind, size)) != 0) return -1;
    return size ? m->io.send(m->io.context, body, size) : 0;
}

int mqtt_connect(struct mqtt *m, const char *client, const char *user, const char *password, const char *will_topic,
                 const uint8_t *will, size_t will_size) {
    /* what arrives shares the buffer, and nothing arrives before the connection is accepted */
    static const uint8_t name[] = {0, 4, 'M', 'Q', 'T', 'T', 4};
    size_t needed = sizeof name + 3 + 10 + strlen(client) + will_size + (will_topic ? strlen(will_topic) : 0) +
                    (user ? strlen(user) : 0) + (password ? strlen(password) : 0);
    uint8_t *at = m->buffer, flags = 2;
    if (needed > m->room) return -1;
    m->connected = m->refused = m->subscribed = 0;
    m->have = m->body = m->skip = 0;
    memcpy(at, name, sizeof name);
    at += sizeof name;
    if (will_topic != NULL) flags |= 0x04 | 0x08 | 0x20; /* at QoS 1, retained */
    if (user != NULL) flags |= 0x80;
    if (password != NULL) flags |= 0x40;
    *at++ = flags;
    *at++ = 0;
    *at++ = MQTT_KEEPALIVE;
    at = text(at, client, strlen(client));
    if (will_topic != NULL) {
        at = text(at, will_topic, strlen(will_topic));
        at = text(at, will, will_size);
    }
    if (user != NULL) at = text(at, user, strlen(user));
    if (password != NULL) at = text(at, password, strlen(password));
    return send_packet(m, CONNECT, m->buffer, (size_t)(at - m->buffer));
}

int mqtt_subscribe(struct mqtt *m, const char *filter) {
    uint8_t body[2 + 2 + MICRO_TOPIC + 1], *at;
    uint16_t number = next_packet(m);
    if (strlen(filter) > MICRO_TOPIC) return -1;
    body[0] = (uint8_t)(number >> 8);
    body[1] = (uint8_t)number;
    at = text(body + 2, filter, strlen(filter));
    *at++ = 1;
    return send_packet(m, SUBSCRIBE, body, (size_t)(at - body));
}

int mqtt_publish(struct mqtt *m, const char *topic, uint8_t *payload, size_t size, int retain) {
    uint8_t start[5], *at = payload;
    uint16_t number = next_packet(m);
    size_t length = strlen(topic);
    if (length > MICRO_TOPIC) return -1;
    *--at = (uint8_t)number;
    *--at = (uint8_t)(number >> 8);
    at -= length;
    memcpy(at, topic, length);
    *--at = (uint8_t)length;
    *--at = (uint8_t)(length >> 8);
    size_t body = (size_t)(payload - at) + size, some = head(start, retain ? PUBLISH | 3 : PUBLISH | 2, body);
    at -= some;
    memcpy(at, start, some);
    return m->io.send(m->io.context, at, some + body);
}

int mqtt_ping(struct mqtt *m) { return send_packet(m, PINGREQ, NULL, 0); }

int mqtt_disconnect(struct mqtt *m) { return send_packet(m, DISCONNECT, NULL, 0); }

/* Return the bytes of a packet's head, 0 if there are too few yet, or -1; write the bytes of its body. */
static int parse_head(const struct mqtt *m, size_t *body) {
    *body = 0;
    for (size_t i = 1; i < m->have && i < 5; i++) {
        *body |= (size_t)(m->buffer[i] & 0x7f) << 7 * (i - 1);
        if (!(m->buffer[i] & 0x80)) return (int)i + 1;
    }
    return m->have >= 5 ? -1 : 0;
}

static int handle(struct mqtt *m, struct mqtt_message *out, uint8_t *body, size_t size) {
    uint8_t kind = m->buffer[0];
    switch (kind & 0xf0) {
    case CONNACK:
        if (size < 2 || body[1] != 0) m->refused = 1;
        else m->connected = 1;
        return 0;
    case SUBACK:
        if (size < 3 || body[2] > 1) m->refused = 1;
        else m->subscribed++;
        return 0;
    case PUBLISH: {
        size_t length = size < 2 ? 0 : (size_t)body[0] << 8 | body[1], at = 2 + length, quality = kind >> 1 & 3;
        if (size < 2 || quality > 1 || at + 2 * quality > size) return -1;
        if (quality) {
            if (send_packet(m, PUBACK, body + at, 2) != 0) return -1;
            at += 2;
        }
        out->topic = (const char *)body + 2;
        out->topic_size = length;
        out->payload = body + at;
        out->size = size - at;
        return 1;
    }
    default: return 0; /* acknowledgements, and answers to pings */
    }
}

int mqtt_poll(struct mqtt *m, struct mqtt_message *out, uint32_t wait) {
    for (;;) {
        size_t body;
        int start = parse_head(m, &body), got;
        if (start < 0) return -1;
        size_t want = start == 0 ? (m->have < 2 ? 2 : m->have + 1) : (size_t)start + body;
        if (start > 0 && want > m->room) { /* a message that no board wants is read and forgotten */
            uint8_t waste[64];
            if (m->skip == 0) m->skip = want - m->have;
            got = m->io.receive(m->io.context, waste, m->skip < sizeof waste ? m->skip : sizeof waste, wait);
            if (got > 0 && (m->skip -= (size_t)got) == 0) m->have = 0;
        } else if (m->have < want) {
            got = m->io.receive(m->io.context, m->buffer + m->have, want - m->have, wait);
            if (got > 0) m->have += (size_t)got;
        } else {
            m->have = 0; /* the caller reads it before it polls again */
            return handle(m, out, m->buffer + start, body);
        }
        if (got <= 0) return got;
        m->heard = 1;
    }
}
