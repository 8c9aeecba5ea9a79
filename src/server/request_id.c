// SPDX-License-Identifier: Apache-2.0
#include "server/request_id.h"

#include <stdio.h>
#include <sys/random.h>
#include <time.h>

static bool is_sane_byte(char byte)
{
    char lower = (char)(byte | 0x20);
    return (lower >= 'a' && lower <= 'z') || (byte >= '0' && byte <= '9') || (byte && strchr("-_.:/+=@", byte));
}

bool request_id_is_sane(struct bytes id)
{
    size_t i = 0;
    while (i < id.len && is_sane_byte(id.data[i]))
        i++;
    return id.len && i == id.len && id.len <= REQUEST_ID_BYTES_MAX;
}

void request_id_random(char digits[REQUEST_ID_RANDOM_DIGITS + 1])
{
    uint64_t random[2] = { 0 };
    struct timespec now;
    if (getrandom(random, sizeof random, 0) != sizeof random) {
        clock_gettime(CLOCK_REALTIME, &now);
        random[0] = (uint64_t)now.tv_sec, random[1] = (uint64_t)now.tv_nsec;
    }
    snprintf(digits, REQUEST_ID_RANDOM_DIGITS + 1, "%016llx%016llx", (unsigned long long)random[0],
             (unsigned long long)random[1]);
}
