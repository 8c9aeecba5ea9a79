// SPDX-License-Identifier: Apache-2.0
// plan.c: what would run, decided from a model's headers: no weight is read, and the device need not be there.
//
//   cc plan.c -o plan $(pkg-config --cflags --libs nibble)
//   ./plan MODEL nvfp4 sm_90
#include <stdio.h>
#include <stdlib.h>

#include <nibble.h>

int main(int argc, char **argv)
{
    struct nibble_error error = { 0 };
    if (argc != 4)
        return fprintf(stderr, "usage: plan MODEL KV-CACHE-DTYPE DEVICE\n"), 2;
    struct nibble_options options = { .kv_cache_dtype = argv[2], .device = argv[3], .max_num_seqs = 8 };
    struct nibble_checkpoint *checkpoint = nibble_checkpoint_open(argv[1], NIBBLE_NEED_HEADERS, &error);
    struct nibble_plan *plan = checkpoint ? nibble_plan_make(checkpoint, &options, &error) : NULL;
    bool ok = plan && nibble_plan_accepted(plan);
    if (ok) {
        struct nibble_text text = { 0 };
        struct nibble_cost cost;
        nibble_plan_print(plan, NIBBLE_PLAN_FULL, 0, &text);
        fwrite(text.data, 1, text.len, stdout);
        free(text.data);
        nibble_plan_cost(plan, 8, 1024, 1, &cost);
        printf("a step of 8 sequences at 1024 tokens reads %.1f MB\n", cost.read_bytes / 1e6);
    } else {
        fprintf(stderr, "plan: %s\n", error.text); // of a plan that is refused: why, and what would run instead
    }
    nibble_plan_close(plan);
    nibble_checkpoint_close(checkpoint);
    return ok ? 0 : 1;
}
