/* The same by OpenSSL, for tests on a machine without BearSSL and libsodium: it takes memory from the heap. */
#include "crypto.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <stdlib.h>
#include <string.h>

static void require(int fine) {
    if (fine != 1) abort(); /* a library that cannot compute is not to be survived */
}

void crypto_sha256(uint8_t out[32], const void *data, size_t size) { require(SHA256(data, size, out) != NULL); }

void crypto_hmac(uint8_t out[32], const uint8_t key[32], const void *data, size_t size) {
    unsigned length = 32;
    require(HMAC(EVP_sha256(), key, 32, data, size, out, &length) != NULL);
}

static void public_of(uint8_t out[32], const uint8_t private_key[32], int kind) {
    size_t size = 32;
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(kind, NULL, private_key, 32);
    require(key != NULL && EVP_PKEY_get_raw_public_key(key, out, &size));
    EVP_PKEY_free(key);
}

void crypto_exchange_public(uint8_t out[32], const uint8_t private_key[32]) {
    public_of(out, private_key, EVP_PKEY_X25519);
}

int crypto_exchange(uint8_t out[32], const uint8_t private_key[32], const uint8_t public_key[32]) {
    size_t size = 32;
    EVP_PKEY *own = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, private_key, 32);
    EVP_PKEY *other = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, public_key, 32);
    EVP_PKEY_CTX *context = EVP_PKEY_CTX_new(own, NULL);
    int fine = EVP_PKEY_derive_init(context) == 1 && EVP_PKEY_derive_set_peer(context, other) == 1 &&
               EVP_PKEY_derive(context, out, &size) == 1;
    EVP_PKEY_CTX_free(context);
    EVP_PKEY_free(own);
    EVP_PKEY_free(other);
    return fine ? 0 : -1;
}

void crypto_sign_public(uint8_t out[32], const uint8_t seed[32]) { public_of(out, seed, EVP_PKEY_ED25519); }

void crypto_sign(uint8_t out[64], const uint8_t seed[32], const void *data, size_t size) {
    size_t length = 64;
    EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, seed, 32);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    require(EVP_DigestSignInit(context, NULL, NULL, NULL, key));
    require(EVP_DigestSign(context, out, &length, data, size));
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
}

int crypto_verify(const uint8_t public_key[32], const uint8_t signature[64], const void *data, size_t size) {
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, public_key, 32);
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    int fine = key != NULL && EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) == 1 &&
               EVP_DigestVerify(context, signature, 64, data, size) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    return fine ? 0 : -1;
}

static EVP_CIPHER_CTX *begin(const uint8_t key[32], const uint8_t nonce[12], const void *header, size_t header_size,
                             int encrypts) {
    int length;
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    require(EVP_CipherInit_ex(context, EVP_aes_256_gcm(), NULL, key, nonce, encrypts));
    require(EVP_CipherUpdate(context, NULL, &length, header, (int)header_size));
    return context;
}

void crypto_seal(const uint8_t key[32], const uint8_t nonce[12], const void *header, size_t header_size, uint8_t *data,
                 size_t size, uint8_t tag[16]) {
    int length;
    EVP_CIPHER_CTX *context = begin(key, nonce, header, header_size, 1);
    require(EVP_CipherUpdate(context, data, &length, data, (int)size));
    require(EVP_CipherFinal_ex(context, data + length, &length));
    require(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, 16, tag));
    EVP_CIPHER_CTX_free(context);
}

int crypto_open(const uint8_t key[32], const uint8_t nonce[12], const void *header, size_t header_size, uint8_t *data,
                size_t size, const uint8_t tag[16]) {
    int length;
    uint8_t expected[16], end[16];
    EVP_CIPHER_CTX *context = begin(key, nonce, header, header_size, 0);
    memcpy(expected, tag, 16);
    require(EVP_CipherUpdate(context, data, &length, data, (int)size));
    require(EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_SET_TAG, 16, expected));
    int fine = EVP_CipherFinal_ex(context, end, &length);
    EVP_CIPHER_CTX_free(context);
    return fine == 1 ? 0 : -1;
}
