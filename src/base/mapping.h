// SPDX-License-Identifier: Apache-2.0
// base/mapping.h: SIGBUS on mapped files. Reading a mapped file that was truncated, or whose disk fails, raises SIGBUS.
// The handler finds the file by the fault's address and prints an error that names it. A library must not install
// signal handlers, so only the program calls mapping_guard.
#ifndef BASE_MAPPING_H
#define BASE_MAPPING_H

#include "base/bytes.h"

struct mapping;

struct mapping *mapping_add(struct bytes content, const char *path) __attribute__((returns_nonnull));
void mapping_remove(struct mapping *mapping); // NULL does nothing

const char *mapping_path(const struct mapping *mapping);
bool mapping_is_lost(const struct mapping *mapping); // true if a read failed since mapping_go_on

// Installs the handler: SIGBUS ends the process with status 1 and an error that names the file.
void mapping_guard(void);

// From here on unreadable pages read as zeros. The server calls mapping_is_lost before it uses a result, so that it can
// answer its clients before it exits.
void mapping_go_on(void);

#endif
