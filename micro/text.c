#include "text.h"

#include <string.h>

size_t text_add(char *out, size_t at, const char *text) {
    size_t size = strlen(text);
    memcpy(out + at, text, size + 1);
    return at + size;
}

size_t text_add_number(char *out, size_t at, uint64_t number, unsigned base) {
    char digits[20];
    int count = 0;
    do digits[count++] = "0123456789abcdef"[number % base];
    while (number /= base);
    while (count) out[at++] = digits[--count];
    out[at] = 0;
    return at;
}

int text_equals(const char *text, size_t size, const char *known) {
    return size == strlen(known) && memcmp(text, known, size) == 0;
}
