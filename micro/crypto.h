/* Cryptography that a board takes from a library: crypto_board.c uses BearSSL and libsodium, which need no memory
 * from the heap; crypto_openssl.c uses OpenSSL, for tests on a machine that has neither. */
#ifndef MICRO_CRYPTO_H
#define MICRO_CRYPTO_H

#include <stddef.h>
#include <stdint.h>

/* Functions return 0, or -1 where the input is not authentic, or weak. */
void crypto_sha256(uint8_t out[32], const void *data, size_t size);
void crypto_hmac(uint8_t out[32], const uint8_t key[32], const void *data, size_t size);
void crypto_exchange_public(uint8_t out[32], const uint8_t private_key[32]);
int crypto_exchange(uint8_t out[32], const uint8_t private_key[32], const uint8_t public_key[32]);
void crypto_sign_public(uint8_t out[32], const uint8_t seed[32]);
void crypto_sign(uint8_t out[64], const uint8_t seed[32], const void *data, size_t size);
int crypto_verify(const uint8_t public_key[32], const uint8_t signature[64], const void *data, size_t size);
/* AES-256-GCM in place. */
void crypto_seal(const uint8_t key[32], const uint8_t nonce[12], const void *header, size_t header_size, uint8_t *data,
                 size_t size, uint8_t tag[16]);
int crypto_open(const uint8_t key[32], const uint8_t nonce[12], const void *header, size_t header_size, uint8_t *data,
                size_t size, const uint8_t tag[16]);

#endif
