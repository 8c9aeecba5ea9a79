// SPDX-License-Identifier: Apache-2.0
// engine/calibration/file.h: the calibration file: a magic, the key, the number of ways to store keys, for each layer
// with keys of its own the centre as f32, for each way its description and its errors in those layers, and a SHA-256 of
// all that. Every length follows from the model and the number of ways, which is bounded.
//   (1) the key is a hash of all that every measurement depends on: the checkpoint's tensors by name, type, shape and
//       samples of their bytes, its config, the text; which format a plan has for a layer is no part of it
//   (2) a file that is damaged or belongs to something else is not used
#ifndef ENGINE_CALIBRATION_FILE_H
#define ENGINE_CALIBRATION_FILE_H

#include "base/strbuf.h"
#include "plan/plan.h"

enum { CALIBRATION_KEY_BYTES = 32 };
struct calibration_key {
    uint8_t bytes[CALIBRATION_KEY_BYTES];
};

// The hash of the checkpoint alone: tensors by name, type, shape and samples of their bytes.
struct calibration_key calibration_hash_checkpoint(const struct checkpoint *checkpoint);

struct calibration_key calibration_key_of(const struct checkpoint *checkpoint, const struct plan *wanted,
                                          struct bytes text);

// Where it is kept, on the heap; NULL: this user has no place for such things.
char *calibration_path(const struct calibration_key *key);

// On false nothing needs freeing.
bool calibration_parse(struct kv_calibration *out, struct bytes content, const struct calibration_key *key,
                       const struct plan *wanted, struct error *err);
void calibration_print(const struct kv_calibration *calibration, const struct calibration_key *key,
                       const struct plan *wanted, struct strbuf *out);

// Adds the hash of all before it, which a content ends in.
void calibration_seal(struct strbuf *content);

#endif
