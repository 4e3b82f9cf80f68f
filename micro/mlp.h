/* A perceptron with ReLU between its layers, trained by SGD on float32 under cross-entropy. */
#ifndef MICRO_MLP_H
#define MICRO_MLP_H

#include "config.h"

/* Write the order of samples of an epoch, as p2pfl.data.batches draws it under a key. */
void mlp_order(uint16_t *order, uint32_t samples, uint64_t key);
uint64_t mlp_subkey(uint64_t key, uint64_t number);

struct mlp_memory {
    float *gradient;                      /* [MICRO_PARAMETERS] */
    float units[MICRO_UNITS];             /* of inputs and of each layer */
    float slopes[2][MICRO_UNITS];         /* of two layers */
    uint16_t order[MICRO_SAMPLES];
};

/* Train the parameters for a round; `rest` is called between samples, so that a peer shows that it is alive. */
void mlp_train(const struct micro_config *c, float *parameters, uint32_t round, struct mlp_memory *m,
               void (*rest)(void *context), void *context);

/* Return the number of the class with the largest output. */
uint32_t mlp_predict(const struct micro_config *c, const float *parameters, const float *features,
                     struct mlp_memory *m);

#endif
