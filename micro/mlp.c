#include "mlp.h"

#include <math.h>
#include <string.h>

/* ------------------------------------------------------------------ batches */

uint64_t mlp_subkey(uint64_t key, uint64_t number) { /* an output of SplitMix64 */
    uint64_t x = key + (number + 1) * UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return x ^ x >> 31;
}

/* What Python sorts as signed numbers: the upper half of a hash, and a position. */
static uint64_t rank(uint64_t key, uint16_t position) {
    return ((mlp_subkey(key, position) & ~UINT64_C(0xffffffff)) | position) ^ UINT64_C(1) << 63;
}

static void sink(uint16_t *heap, uint32_t root, uint32_t count, uint64_t key) {
    for (;;) {
        uint32_t child = 2 * root + 1;
        if (child >= count) return;
        if (child + 1 < count && rank(key, heap[child]) < rank(key, heap[child + 1])) child++;
        if (rank(key, heap[root]) >= rank(key, heap[child])) return;
        uint16_t moved = heap[root];
        heap[root] = heap[child];
        heap[child] = moved;
        root = child;
    }
}

void mlp_order(uint16_t *order, uint32_t samples, uint64_t key) {
    for (uint32_t i = 0; i < samples; i++) order[i] = (uint16_t)i;
    for (uint32_t i = samples / 2; i-- > 0;) sink(order, i, samples, key);
    for (uint32_t end = samples; end-- > 1;) {
        uint16_t largest = order[0];
        order[0] = order[end];
        order[end] = largest;
        sink(order, 0, end, key);
    }
}

/* ------------------------------------------------------------------ gradients */

static float *forward(const struct micro_config *c, const float *parameters, const float *features,
                      struct mlp_memory *m) {
    float *x = m->units;
    memcpy(x, features, c->widths[0] * sizeof *x);
    for (uint32_t layer = 1; layer < MICRO_LAYERS; layer++) {
        uint32_t in = c->widths[layer - 1], out = c->widths[layer];
        const float *weights = parameters, *biases = parameters + (size_t)in * out;
        float *y = x + in;
        for (uint32_t o = 0; o < out; o++) {
            float sum = 0;
            for (uint32_t i = 0; i < in; i++) sum += x[i] * weights[(size_t)o * in + i];
            sum += biases[o];
            y[o] = layer + 1 < MICRO_LAYERS && sum < 0 ? 0 : sum;
        }
        parameters = biases + out;
        x = y;
    }
    return x;
}

/* Add the gradient of one sample, times its share of the batch. */
static void add_gradient(const struct micro_config *c, const float *parameters, uint32_t sample, float share,
                         struct mlp_memory *m) {
    float *y = forward(c, parameters, c->features + (size_t)sample * c->widths[0], m);
    uint32_t classes = c->widths[MICRO_LAYERS - 1];
    float *slopes = m->slopes[0], *below = m->slopes[1], largest = y[0], sum = 0;
    for (uint32_t o = 1; o < classes; o++) largest = y[o] > largest ? y[o] : largest;
    for (uint32_t o = 0; o < classes; o++) sum += slopes[o] = expf(y[o] - largest);
    for (uint32_t o = 0; o < classes; o++) slopes[o] = (slopes[o] / sum - (o == c->targets[sample])) * share;
    size_t end = MICRO_PARAMETERS; /* of the parameters of the layer */
    for (uint32_t layer = MICRO_LAYERS - 1; layer > 0; layer--) {
        uint32_t in = c->widths[layer - 1], out = c->widths[layer];
        size_t biases = end - out, weights = biases - (size_t)in * out;
        const float *x = y - in;
        memset(below, 0, in * sizeof *below);
        for (uint32_t o = 0; o < out; o++) {
            float g = slopes[o];
            m->gradient[biases + o] += g;
            for (uint32_t i = 0; i < in; i++) {
                m->gradient[weights + (size_t)o * in + i] += g * x[i];
                below[i] += g * parameters[weights + (size_t)o * in + i];
            }
        }
        for (uint32_t i = 0; i < in; i++)
            if (!(x[i] > 0)) below[i] = 0;
        float *swapped = slopes;
        slopes = below;
        below = swapped;
        y -= in;
        end = weights;
    }
}

void mlp_train(const struct micro_config *c, float *parameters, uint32_t round, struct mlp_memory *m,
               void (*rest)(void *context), void *context) {
    int all = c->batch >= c->samples;
    uint32_t batch = all ? c->samples : c->batch, steps = (c->samples + batch - 1) / batch;
    uint64_t key = mlp_subkey(c->batch_key, round);
    for (uint32_t step = 0; step < c->local_steps; step++) {
        uint32_t start = step % steps * batch, size = c->samples - start < batch ? c->samples - start : batch;
        if (start == 0 && !all) mlp_order(m->order, c->samples, mlp_subkey(key, step / steps));
        memset(m->gradient, 0, MICRO_PARAMETERS * sizeof *m->gradient);
        for (uint32_t i = start; i < start + size; i++) {
            add_gradient(c, parameters, all ? i : m->order[i], 1.0f / (float)size, m);
            rest(context);
        }
        for (size_t i = 0; i < MICRO_PARAMETERS; i++) parameters[i] -= c->rate * m->gradient[i];
    }
}

uint32_t mlp_predict(const struct micro_config *c, const float *parameters, const float *features,
                     struct mlp_memory *m) {
    const float *y = forward(c, parameters, features, m);
    uint32_t best = 0;
    for (uint32_t o = 1; o < c->widths[MICRO_LAYERS - 1]; o++)
        if (y[o] > y[best]) best = o;
    return best;
}
