/* What is decided when a board is flashed: sizes of arrays, and the parameters of one peer of one experiment.
 *
 * flash.py writes a header with both; MICRO_FLASH names it. Without one, the sizes are those of the tests. */
#ifndef MICRO_CONFIG_H
#define MICRO_CONFIG_H

#include <stddef.h>
#include <stdint.h>

#ifdef MICRO_FLASH
#include MICRO_FLASH
#else
#define MICRO_PARAMETERS 2410
#define MICRO_NEIGHBOURS 2
#define MICRO_SAMPLES 256
#define MICRO_UNITS 106
#define MICRO_LAYERS 3
#define MICRO_FACTS 2048
#define MICRO_PREFIX ""
#endif

#define MICRO_NAME 23   /* bytes of a peer's name with its end */
#define MICRO_SWARM 41  /* bytes of the name of a run with its end */
#define MICRO_TOPIC (111 + sizeof MICRO_PREFIX) /* MICRO_PREFIX "p2pfl/v1/SWARM/peer/NAME/in/NAME" and its end */

struct micro_neighbour_config {
    const char *name;
    const uint8_t *key; /* Ed25519, from the roster; NULL to trust the first that comes */
    float weight;       /* of its model in a gossip step */
};

struct micro_config {
    const char *name, *swarm;
    const char *run; /* the swarm and the digest of the roster, from which keys of edges follow */
    const char *version;
    const uint8_t *identity; /* seed of the Ed25519 key pair, 32 bytes */
    const uint8_t *facts;    /* what neighbours must agree on, as msgpack */
    uint32_t facts_size;
    struct micro_neighbour_config neighbours[MICRO_NEIGHBOURS]; /* in the order in which models are added */
    uint32_t rounds, gossip_steps;
    uint32_t patience; /* seconds */
    uint32_t gather;   /* seconds within which all neighbours must come */
    int adapt_first;   /* mix the result of training, rather than the model before it */
    /* training */
    uint32_t samples, batch, local_steps; /* optimiser steps of a round */
    uint64_t batch_key;                   /* of the peer, from which the orders of samples follow */
    float rate;
    uint32_t widths[MICRO_LAYERS]; /* of inputs, hidden layers and outputs */
    const float *start;            /* [MICRO_PARAMETERS] */
    const float *features;         /* [samples, widths[0]] */
    const uint16_t *targets;       /* [samples] */
};

#if defined(MICRO_FLASH) && defined(MICRO_DATA)
#define MICRO_DATA_NOW
#include MICRO_FLASH
#endif

#endif
