// SPDX-License-Identifier: Apache-2.0
#include "kernel/x86/gated_delta.h"
