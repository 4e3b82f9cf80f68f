/* One peer of a run on a board: it joins, learns its rounds with its neighbours, and says goodbye. */
#ifndef MICRO_PEER_H
#define MICRO_PEER_H

#include "config.h"
#include "mlp.h"
#include "mqtt.h"
#include "seal.h"
#include "wire.h"

/* What a board supplies. The connection is open before the peer begins. */
struct micro_platform {
    struct mqtt_io io;
    const char *user, *password; /* NULL without a login */
    void *context;
    uint64_t (*milliseconds)(void *context);
    uint64_t (*incarnation)(void *context); /* a number above that of each earlier start, such as a clock's */
    void (*random)(void *context, uint8_t *out, size_t size); /* secret bytes */
    /* Keep the model after a round, in one write; return 0, or -1 where that failed. */
    int (*store)(void *context, uint32_t rounds, const float *model, size_t parameters);
    void (*note)(void *context, const char *sentence); /* for people; may be NULL */
    /* Open the connection again; return 0, or -1 after a moment. NULL where a lost connection ends the peer. */
    int (*reconnect)(void *context);
};

#define MICRO_CHUNK_HEAD (72 + WIRE_SIGNATURE) /* bytes of a chunk before its data, at most */
#define MICRO_ROW (WIRE_ROW_HEAD + 4 * MICRO_PARAMETERS)
#define MICRO_TAGS 64       /* neighbours that a neighbour may have */
#define MICRO_LARGER(a, b) ((a) > (b) ? (a) : (b))
#define MICRO_BODY MICRO_LARGER(MICRO_ROW, MICRO_FACTS + 2048)
#define MICRO_IN (MICRO_TOPIC + 16 + MICRO_CHUNK_HEAD + 31 + 16 * MICRO_TAGS + MICRO_BODY)
#define MICRO_OUT (MQTT_HEADROOM + SEAL_HEAD + MICRO_CHUNK_HEAD + MICRO_BODY + SEAL_TAG)
#define MICRO_CONTROL (MQTT_HEADROOM + SEAL_HEAD + 256 + SEAL_TAG)

struct micro_other {
    uint8_t identity[32];
    int known_identity, gone, ended; /* it has stated that it applies nothing more */
    uint64_t incarnation, turn, lost_since; /* 0 unless the broker has published its will */
    uint64_t last[3];                /* numbers above which pulses, acknowledgements and accounts are new */
    uint64_t next, head;             /* of its stream: what is expected, and what has been sent */
    uint64_t acknowledged;           /* of this board's stream: everything below has arrived */
    uint64_t at[2];                  /* gossip step that it has reported */
    uint64_t known[2];               /* gossip step from which statements matter to it */
    uint64_t missed;                 /* which of the last 64 gossip steps lack its model */
    uint64_t heard;                  /* of `polled`, when its last message came */
    uint64_t seen;                   /* time of its announcement */
    int got;                         /* its model of this gossip step has been added */
    int later;                       /* a model of a later gossip step has come */
    int differs, unreadable;         /* it runs another experiment, or another version of the wire format */
};

struct micro_peer {
    const struct micro_config *c;
    struct micro_platform platform;
    struct mqtt mqtt;
    float model[MICRO_PARAMETERS], released[MICRO_PARAMETERS], ahead[MICRO_PARAMETERS];
    int ahead_from; /* whose model of a later gossip step waits, -1 for nobody's */
    uint64_t ahead_at[2];
    union {
        float gradient[MICRO_PARAMETERS]; /* while the peer trains */
        uint8_t out[MICRO_OUT];           /* otherwise */
    } work;
    uint8_t in[MICRO_IN], control[MICRO_CONTROL];
    struct mlp_memory mlp;
    struct seal_own own;
    struct seal_edge edges[MICRO_NEIGHBOURS];
    struct micro_other others[MICRO_NEIGHBOURS];
    uint8_t identity[32], exchange[32];
    uint64_t polled; /* milliseconds in which nothing came while this peer listened */
    uint64_t quiet;  /* those since the last byte of the broker */
    uint64_t incarnation, number, account, turn, head, round, step, beat;
    int broken; /* the connection is lost */
    int announced, begun, mixing, waiting, finished, echoed;
    const char *error;
    char sentence[160];
};

/* Play all rounds; return 0, or -1 with the reason in `error`. The model is `model`. */
int micro_run(struct micro_peer *p, const struct micro_config *c, const struct micro_platform *platform);

#endif
