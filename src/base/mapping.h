// SPDX-License-Identifier: Apache-2.0
// base/mapping.h: SIGBUS. Reading a mapped file behind the end that somebody has cut it to, or where its disk fails,
// raises that signal. The program's handler finds the file by the address and says which it is, instead of dying
// without a word. A library does not take over signals: it is the program that calls mapping_guard.
#ifndef BASE_MAPPING_H
#define BASE_MAPPING_H

#include "base/bytes.h"

struct mapping;

struct mapping *mapping_add(struct bytes content, const char *path) __attribute__((returns_nonnull));
void mapping_remove(struct mapping *mapping); // NULL is fine

const char *mapping_path(const struct mapping *mapping);
bool mapping_is_lost(const struct mapping *mapping); // something of it could not be read since mapping_go_on

// From here on the signal ends the process with a sentence that names the file, and status 1.
void mapping_guard(void);

// From here on what cannot be read is zeros, so that the caller, who asks mapping_is_lost before it uses a result, can
// tell its clients before it ends.
void mapping_go_on(void);

#endif
