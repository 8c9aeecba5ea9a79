// SPDX-License-Identifier: Apache-2.0
// tools/report_page.h: a report as one HTML page: the template web/report.html, which draws a command's JSON.
#ifndef TOOLS_REPORT_PAGE_H
#define TOOLS_REPORT_PAGE_H

#include "tools/output_file.h"

// Finishes the file with a page about `json`, the same text that --json prints.
bool report_page_finish(struct output_file *file, const char *json, struct error *err);

#endif
