// SPDX-License-Identifier: Apache-2.0
#include "server/fingerprint.h"

#include <jansson.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sha256.h"
#include "base/strbuf.h"
#include "engine/calibration/file.h"

// The plan without its figures of memory: how much was free at the start says nothing about answers.
static void add_plan(struct strbuf *out, struct bytes plan)
{
    json_t *json = json_loadb(plan.data, plan.len, 0, NULL);
    json_object_del(json, "memory");
    char *text = json_dumps(json, JSON_COMPACT | JSON_SORT_KEYS);
    strbuf_add_text(out, text ? text : "");
    free(text);
    json_decref(json);
}

static size_t note_padded(size_t len) { return (len + 3) / 4 * 4; }

// The linker's build id: a note named "GNU" of type NT_GNU_BUILD_ID.
static void add_build_id(struct strbuf *out, const char *at, size_t len)
{
    while (len >= sizeof(ElfW(Nhdr))) {
        const ElfW(Nhdr) *note = (const void *)at;
        size_t bytes = sizeof *note + note_padded(note->n_namesz) + note_padded(note->n_descsz);
        if (bytes > len)
            return;
        if (note->n_type == NT_GNU_BUILD_ID)
            strbuf_add(out, at, bytes);
        at += bytes;
        len -= bytes;
    }
}

static int add_program(struct dl_phdr_info *program, size_t size, void *out)
{
    (void)size;
    for (int i = 0; i < program->dlpi_phnum; i++) {
        const ElfW(Phdr) *segment = &program->dlpi_phdr[i];
        if (segment->p_type == PT_NOTE)
            add_build_id(out, (const char *)(program->dlpi_addr + segment->p_vaddr), segment->p_memsz);
    }
    return 1; // the first is the program itself
}

void fingerprint_print(const struct checkpoint *checkpoint, struct bytes plan, char *out, size_t size)
{
    struct calibration_key files = calibration_hash_checkpoint(checkpoint);
    uint8_t digest[SHA256_BYTES];
    struct strbuf all = { 0 };
    strbuf_add(&all, (const char *)files.bytes, sizeof files.bytes);
    strbuf_add_text(&all, NIBBLE_VERSION);
    dl_iterate_phdr(add_program, &all);
    add_plan(&all, plan);
    sha256_of(strbuf_bytes(&all), digest);
    strbuf_free(&all);
    uint64_t first;
    memcpy(&first, digest, sizeof first);
    snprintf(out, size, "fp_%016llx", (unsigned long long)first);
}
