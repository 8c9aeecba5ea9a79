// SPDX-License-Identifier: Apache-2.0
// format/hub.h: the local Hugging Face hub cache. nibble reads the cache and never writes it.
//   CACHE/models--ORG--NAME/refs/main               the name of a snapshot
//   CACHE/models--ORG--NAME/snapshots/SNAPSHOT/...  the files, most of them links into a folder of blobs
#ifndef FORMAT_HUB_H
#define FORMAT_HUB_H

#include "base/error.h"
#include "base/memory.h"

// Finds the snapshot folder of `org/name`; the path is in the arena. The error names the cache that was searched.
bool hub_find(const char *model, struct arena *arena, const char **folder, struct error *err);

#endif
