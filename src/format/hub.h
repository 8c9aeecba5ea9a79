// SPDX-License-Identifier: Apache-2.0
// format/hub.h: where Hugging Face's tools keep what they downloaded. nibble reads that cache and never writes it.
//   CACHE/models--ORG--NAME/refs/main               the name of a snapshot
//   CACHE/models--ORG--NAME/snapshots/SNAPSHOT/...  the files, most of them links into a folder of blobs
#ifndef FORMAT_HUB_H
#define FORMAT_HUB_H

#include "base/error.h"
#include "base/memory.h"

// The folder that holds `org/name`, in the arena. The error says where it was looked for.
bool hub_find(const char *model, struct arena *arena, const char **folder, struct error *err);

#endif
