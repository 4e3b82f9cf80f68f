/* AES-GCM and hashes by BearSSL, whose AES takes constant time without tables; curves by libsodium. */
#include "crypto.h"

#include <bearssl.h>
#include <sodium/crypto_scalarmult_curve25519.h>
#include <sodium/crypto_sign_ed25519.h>
#include <string.h>

/* libsodium calls these where its caller is wrong, and to make keys, neither of which happens here: its own functions
 * would come with ciphers that a board does not use. */
void sodium_misuse(void);
void randombytes_buf(void *out, size_t size);

void sodium_misuse(void) {
    for (;;) {
    }
}

void randombytes_buf(void *out, size_t size) {
    (void)out;
    (void)size;
    sodium_misuse();
}

void crypto_sha256(uint8_t out[32], const void *data, size_t size) {
    br_sha256_context c;
    br_sha256_init(&c);
    br_sha256_update(&c, data, size);
    br_sha256_out(&c, out);
}

void crypto_hmac(uint8_t out[32], const uint8_t key[32], const void *data, size_t size) {
    br_hmac_key_context k;
    br_hmac_context c;
    br_hmac_key_init(&k, &br_sha256_vtable, key, 32);
    br_hmac_init(&c, &k, 0);
    br_hmac_update(&c, data, size);
    br_hmac_out(&c, out);
}

void crypto_exchange_public(uint8_t out[32], const uint8_t private_key[32]) {
    (void)crypto_scalarmult_curve25519_base(out, private_key);
}

int crypto_exchange(uint8_t out[32], const uint8_t private_key[32], const uint8_t public_key[32]) {
    return crypto_scalarmult_curve25519(out, private_key, public_key);
}

static void key_pair(uint8_t secret[64], uint8_t public_key[32], const uint8_t seed[32]) {
    (void)crypto_sign_ed25519_seed_keypair(public_key, secret, seed);
}

void crypto_sign_public(uint8_t out[32], const uint8_t seed[32]) {
    uint8_t secret[64];
    key_pair(secret, out, seed);
}

void crypto_sign(uint8_t out[64], const uint8_t seed[32], const void *data, size_t size) {
    uint8_t secret[64], public_key[32];
    key_pair(secret, public_key, seed);
    (void)crypto_sign_ed25519_detached(out, NULL, data, size, secret);
}

int crypto_verify(const uint8_t public_key[32], const uint8_t signature[64], const void *data, size_t size) {
    return crypto_sign_ed25519_verify_detached(signature, data, size, public_key);
}

static void begin(br_gcm_context *gcm, br_aes_ct_ctr_keys *aes, const uint8_t key[32], const uint8_t nonce[12],
                  const void *header, size_t header_size) {
    br_aes_ct_ctr_init(aes, key, 32);
    br_gcm_init(gcm, &aes->vtable, br_ghash_ctmul32);
    br_gcm_reset(gcm, nonce, 12);
    br_gcm_aad_inject(gcm, header, header_size);
    br_gcm_flip(gcm);
}

void crypto_seal(const uint8_t key[32], const uint8_t nonce[12], const void *header, size_t header_size, uint8_t *data,
                 size_t size, uint8_t tag[16]) {
    br_aes_ct_ctr_keys aes;
    br_gcm_context gcm;
    begin(&gcm, &aes, key, nonce, header, header_size);
    br_gcm_run(&gcm, 1, data, size);
    br_gcm_get_tag(&gcm, tag);
}

int crypto_open(const uint8_t key[32], const uint8_t nonce[12], const void *header, size_t header_size, uint8_t *data,
                size_t size, const uint8_t tag[16]) {
    br_aes_ct_ctr_keys aes;
    br_gcm_context gcm;
    begin(&gcm, &aes, key, nonce, header, header_size);
    br_gcm_run(&gcm, 0, data, size);
    return br_gcm_check_tag(&gcm, tag) ? 0 : -1;
}
