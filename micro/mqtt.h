/* A client of MQTT 3.1.1 over two functions, which a board supplies; QoS 1, without storage of its own: the protocol
 * above repeats what is lost. */
#ifndef MICRO_MQTT_H
#define MICRO_MQTT_H

#include <stddef.h>
#include <stdint.h>

#include "config.h"

#define MQTT_HEADROOM (MICRO_TOPIC + 12) /* bytes before a payload that publishing writes */
#define MQTT_KEEPALIVE 15                /* seconds */

struct mqtt_io {
    /* Send all of the bytes; return 0, or -1 if the connection is lost. */
    int (*send)(void *context, const uint8_t *data, size_t size);
    /* Receive some bytes, at most `size`; return their number, 0 after `wait` milliseconds without any, or -1. */
    int (*receive)(void *context, uint8_t *data, size_t size, uint32_t wait);
    void *context;
};

struct mqtt {
    struct mqtt_io io;
    uint8_t *buffer; /* for one packet that arrives */
    size_t room, have, body, skip;
    uint16_t packet;
    int connected; /* the broker has accepted the connection */
    int heard;     /* bytes have come */
    int refused;   /* it has refused that, or a subscription */
    uint16_t subscribed;
};

struct mqtt_message {
    const char *topic;
    size_t topic_size, size;
    uint8_t *payload;
};

void mqtt_begin(struct mqtt *m, struct mqtt_io io, uint8_t *buffer, size_t room);
/* `user` and `password` may be NULL, and so may the topic of the will. */
int mqtt_connect(struct mqtt *m, const char *client, const char *user, const char *password, const char *will_topic,
                 const uint8_t *will, size_t will_size);
int mqtt_subscribe(struct mqtt *m, const char *filter);
/* Publish a payload, before which MQTT_HEADROOM bytes are free. */
int mqtt_publish(struct mqtt *m, const char *topic, uint8_t *payload, size_t size, int retain);
int mqtt_ping(struct mqtt *m);
int mqtt_disconnect(struct mqtt *m);
/* Return 1 with a message, 0 after `wait` milliseconds or another packet, -1 if the connection is lost or hostile. */
int mqtt_poll(struct mqtt *m, struct mqtt_message *out, uint32_t wait);

#endif
