// SPDX-License-Identifier: Apache-2.0
#include "kernel/x86/per_head_linear.h"
