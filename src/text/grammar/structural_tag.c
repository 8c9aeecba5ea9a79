// SPDX-License-Identifier: Apache-2.0
// Reader of structural tags (XGrammar's, as vLLM and SGLang take them) into a syntax tree: free text in which markers
// begin forms, and forms made of one another. Tokens by their ids are refused: masks are about text.
#include "text/grammar/regex.h"
#include "text/grammar/until.h"

#include <stdio.h>

// Markers that free text must not hold, those of the enclosing tags first.
struct markers {
    struct bytes texts[UNTIL_LITERALS_MAX];
    size_t count;
};

struct reader {
    struct ebnf *tree;
    int depth;
    size_t work; // that automata have taken
};

static uint32_t read_form(struct reader *reader, const json_t *form, const struct markers *outer);

// ---- fields ---------------------------------------------------------------------------------------------------------

static uint32_t refuse(struct reader *reader, const char *type, const char *what)
{
    ebnf_fail(reader->tree, "the structural tag's %.40s %s", type, what);
    return EBNF_NONE;
}

static bool get_text(struct reader *reader, const json_t *form, const char *type, const char *name, struct bytes *out)
{
    const json_t *value = json_object_get(form, name);
    *out = (struct bytes){ json_string_value(value), json_string_length(value) };
    return out->data || ebnf_fail(reader->tree, "the structural tag's %s has no text \"%s\"", type, name);
}

static bool add_markers(struct reader *reader, const json_t *value, struct markers *markers)
{
    size_t index, count = json_is_array(value) ? json_array_size(value) : value != NULL;
    for (index = 0; index < count; index++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, index) : value;
        if (!json_string_length(one))
            return ebnf_fail(reader->tree, "the structural tag has a marker (trigger, end or exclude) that is no text");
        if (markers->count == UNTIL_LITERALS_MAX)
            return ebnf_fail(reader->tree, "the structural tag has more than %d markers in one place",
                             UNTIL_LITERALS_MAX);
        markers->texts[markers->count++] = (struct bytes){ json_string_value(one), json_string_length(one) };
    }
    return true;
}

static bool check_keys(struct reader *reader, const json_t *form, const char *type, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach ((json_t *)form, key, value) {
        bool found = !strcmp(key, "type") || json_is_null(value) || json_is_false(value);
        for (size_t i = 0; known[i] && !found; i++)
            found = !strcmp(known[i], key);
        if (!found)
            return ebnf_fail(reader->tree, "the structural tag's %s has \"%.40s\", which is not supported", type, key);
    }
    return true;
}

// ---- free text ------------------------------------------------------------------------------------------------------

static uint32_t free_text(struct reader *reader, const struct markers *markers, size_t wanted)
{
    struct dfa dfa;
    if (!until_build(markers->texts, markers->count, wanted, &reader->work, &dfa, reader->tree->err))
        return EBNF_NONE;
    return ebnf_dfa(reader->tree, &dfa);
}

static uint32_t read_any_text(struct reader *reader, const json_t *form, const struct markers *outer)
{
    struct markers markers = *outer;
    if (!add_markers(reader, json_object_get(form, "excludes"), &markers))
        return EBNF_NONE;
    return free_text(reader, &markers, 0);
}

// ---- single forms ---------------------------------------------------------------------------------------------------

static uint32_t read_const(struct reader *reader, const json_t *form, const struct markers *outer)
{
    struct bytes text;
    (void)outer;
    return get_text(reader, form, "const_string", "value", &text) ? ebnf_text(reader->tree, text) : EBNF_NONE;
}

static uint32_t read_schema(struct reader *reader, const json_t *form, const struct markers *outer)
{
    const json_t *schema = json_object_get(form, "json_schema");
    const char *style = json_string_value(json_object_get(form, "style"));
    (void)outer;
    if (style && strcmp(style, "json") != 0)
        return refuse(reader, "json_schema", "has a style other than json, which is not supported; use tools");
    if (!json_is_object(schema) && !json_is_boolean(schema))
        return refuse(reader, "json_schema", "has no schema");
    return ebnf_schema(reader->tree, schema);
}

static uint32_t read_regex(struct reader *reader, const json_t *form, const struct markers *outer)
{
    struct bytes pattern;
    (void)outer;
    if (!get_text(reader, form, "regex", "pattern", &pattern))
        return EBNF_NONE;
    return regex_read(reader->tree, pattern, bytes_of(""),
                      &(struct regex_style){ .search = true, .starts = true, .ends = true });
}

static uint32_t read_list(struct reader *reader, const json_t *form, const struct markers *outer, enum ebnf_kind kind)
{
    const json_t *elements = json_object_get(form, "elements"), *element;
    uint32_t begin = ebnf_begin(reader->tree);
    size_t index;
    if (!json_array_size(elements))
        return refuse(reader, kind == EBNF_CHOICE ? "or" : "sequence", "has no elements");
    json_array_foreach (elements, index, element)
        if (!ebnf_add(reader->tree, read_form(reader, element, outer)))
            return EBNF_NONE;
    return ebnf_end(reader->tree, begin, kind);
}

static uint32_t read_sequence(struct reader *reader, const json_t *form, const struct markers *outer)
{
    return read_list(reader, form, outer, EBNF_SEQUENCE);
}

static uint32_t read_or(struct reader *reader, const json_t *form, const struct markers *outer)
{
    return read_list(reader, form, outer, EBNF_CHOICE);
}

static uint32_t read_content(struct reader *reader, const json_t *form, const struct markers *outer)
{
    return read_form(reader, json_object_get(form, "content"), outer);
}

static uint32_t read_optional(struct reader *reader, const json_t *form, const struct markers *outer)
{
    return ebnf_repeat(reader->tree, read_content(reader, form, outer), 0, 1);
}

static uint32_t read_star(struct reader *reader, const json_t *form, const struct markers *outer)
{
    return ebnf_repeat(reader->tree, read_content(reader, form, outer), 0, RULES_UNBOUNDED);
}

static uint32_t read_plus(struct reader *reader, const json_t *form, const struct markers *outer)
{
    return ebnf_repeat(reader->tree, read_content(reader, form, outer), 1, RULES_UNBOUNDED);
}

static uint32_t read_repeat(struct reader *reader, const json_t *form, const struct markers *outer)
{
    const json_t *min = json_object_get(form, "min"), *max = json_object_get(form, "max");
    json_int_t low = json_integer_value(min), high = json_integer_value(max);
    if (!json_is_integer(min) || !json_is_integer(max) || low < 0 || low > EBNF_REPEAT_MAX || high < -1
        || high > EBNF_REPEAT_MAX || (high >= 0 && high < low))
        return refuse(reader, "repeat", "has no min and max of 0 to 4096 (max -1: any number)");
    return ebnf_repeat(reader->tree, read_content(reader, form, outer), (uint32_t)low,
                       high < 0 ? RULES_UNBOUNDED : (uint32_t)high);
}

// ---- tags -----------------------------------------------------------------------------------------------------------

// A rule of its own, so that several places can refer to it; EBNF_NONE with a sentence.
static uint32_t as_rule(struct reader *reader, uint32_t body)
{
    char name[32];
    snprintf(name, sizeof name, "%%%u", reader->tree->rule_count);
    uint32_t rule = ebnf_rule(reader->tree, bytes_of(name));
    return ebnf_define(reader->tree, rule, 0, body) ? rule : EBNF_NONE;
}

static uint32_t refer(struct reader *reader, uint32_t rule)
{
    return rule == EBNF_NONE ? EBNF_NONE : ebnf_reference(reader->tree, reader->tree->rules[rule].name);
}

// The content and the end of a tag: {"begin", "content", "end"}, or the older {"begin", "schema", "end"}.
static uint32_t read_tag_rest(struct reader *reader, const json_t *tag, const struct markers *outer)
{
    static const char *const known[] = { "begin", "content", "schema", "end", NULL };
    const json_t *schema = json_object_get(tag, "schema"), *end = json_object_get(tag, "end");
    struct markers markers = *outer, ends = { .count = 0 };
    if (!check_keys(reader, tag, "tag", known) || !add_markers(reader, end, &ends)
        || !add_markers(reader, end, &markers))
        return EBNF_NONE;
    if (!ends.count)
        return refuse(reader, "tag", "has no end");
    uint32_t begin = ebnf_begin(reader->tree);
    uint32_t content = schema ? ebnf_schema(reader->tree, schema) : read_content(reader, tag, &markers);
    if (!ebnf_add(reader->tree, content))
        return EBNF_NONE;
    uint32_t ways = ebnf_begin(reader->tree);
    for (size_t i = 0; i < ends.count; i++)
        if (!ebnf_add(reader->tree, ebnf_text(reader->tree, ends.texts[i])))
            return EBNF_NONE;
    return ebnf_add(reader->tree, ebnf_end(reader->tree, ways, EBNF_CHOICE))
        ? ebnf_end(reader->tree, begin, EBNF_SEQUENCE)
        : EBNF_NONE;
}

// The tag from byte `done` of its beginning on; `rest` is the rule of its content and end.
static uint32_t tag_from(struct reader *reader, const json_t *tag, size_t done, uint32_t rest)
{
    struct bytes opening;
    uint32_t begin = ebnf_begin(reader->tree);
    if (!get_text(reader, tag, "tag", "begin", &opening)
        || !ebnf_add(reader->tree, ebnf_text(reader->tree, bytes_from(opening, done)))
        || !ebnf_add(reader->tree, refer(reader, rest)))
        return EBNF_NONE;
    return ebnf_end(reader->tree, begin, EBNF_SEQUENCE);
}

static uint32_t read_tag(struct reader *reader, const json_t *tag, const struct markers *outer)
{
    return tag_from(reader, tag, 0, as_rule(reader, read_tag_rest(reader, tag, outer)));
}

// Tags that begin in free text.
enum { TAGS_MAX = 256 };

struct triggered {
    const json_t *tags;
    uint32_t rests[TAGS_MAX]; // of the tags, as rules
    struct markers triggers;
};

static bool read_rests(struct reader *reader, struct triggered *triggered, const struct markers *outer)
{
    size_t index;
    const json_t *tag;
    if (!json_array_size(triggered->tags) || json_array_size(triggered->tags) > TAGS_MAX)
        return refuse(reader, "triggered_tags", "has no list of 1 to 256 tags") != EBNF_NONE;
    json_array_foreach (triggered->tags, index, tag) {
        triggered->rests[index] = as_rule(reader, read_tag_rest(reader, tag, outer));
        if (triggered->rests[index] == EBNF_NONE)
            return false;
    }
    return true;
}

static size_t find_trigger(const struct triggered *triggered, const json_t *tag)
{
    const json_t *begin = json_object_get(tag, "begin");
    struct bytes opening = { json_string_value(begin), json_string_length(begin) };
    size_t i = 0;
    while (i < triggered->triggers.count && !(opening.data && bytes_start_with(opening, triggered->triggers.texts[i])))
        i++;
    return i;
}

// The tags of trigger `which`, behind it; all tags, from their beginning, where there is no such trigger.
static uint32_t read_tags(struct reader *reader, const struct triggered *triggered, size_t which)
{
    uint32_t ways = ebnf_begin(reader->tree);
    size_t index, all = triggered->triggers.count;
    const json_t *tag;
    json_array_foreach (triggered->tags, index, tag) {
        size_t done = which < all ? triggered->triggers.texts[which].len : 0;
        if ((which == all || find_trigger(triggered, tag) == which)
            && !ebnf_add(reader->tree, tag_from(reader, tag, done, triggered->rests[index])))
            return EBNF_NONE;
    }
    if (ebnf_begin(reader->tree) == ways)
        return refuse(reader, "trigger", "is not what one of its tags begins with");
    return ebnf_end(reader->tree, ways, EBNF_CHOICE);
}

// Free text up to a trigger, and one of its tags.
static uint32_t read_triggered_once(struct reader *reader, const struct triggered *triggered,
                                    const struct markers *outer)
{
    uint32_t ways = ebnf_begin(reader->tree);
    for (size_t i = 0; i < triggered->triggers.count; i++) {
        struct markers markers = { .texts = { triggered->triggers.texts[i] }, .count = 1 };
        uint32_t begin = ebnf_begin(reader->tree);
        for (size_t k = 0; k < triggered->triggers.count + outer->count; k++) {
            bool own = k < triggered->triggers.count;
            if (k == i || markers.count == UNTIL_LITERALS_MAX)
                continue;
            markers.texts[markers.count++] = own ? triggered->triggers.texts[k]
                                                 : outer->texts[k - triggered->triggers.count];
        }
        if (!ebnf_add(reader->tree, free_text(reader, &markers, 1))
            || !ebnf_add(reader->tree, read_tags(reader, triggered, i))
            || !ebnf_add(reader->tree, ebnf_end(reader->tree, begin, EBNF_SEQUENCE)))
            return EBNF_NONE;
    }
    return ebnf_end(reader->tree, ways, EBNF_CHOICE);
}

// [tag] (text trigger tag)* text; with stop_after_first: one tag, or text.
static uint32_t read_triggered(struct reader *reader, const json_t *form, const struct markers *outer)
{
    struct ebnf *tree = reader->tree;
    bool needed = json_is_true(json_object_get(form, "at_least_one"));
    bool once = json_is_true(json_object_get(form, "stop_after_first"));
    struct triggered triggered = { .tags = json_object_get(form, "tags") };
    struct markers markers = *outer;
    size_t index;
    const json_t *tag;
    if (!triggered.tags)
        triggered.tags = json_object_get(form, "structures"); // the older form
    if (!add_markers(reader, json_object_get(form, "excludes"), &markers)
        || !add_markers(reader, json_object_get(form, "triggers"), &triggered.triggers)
        || !read_rests(reader, &triggered, outer))
        return EBNF_NONE;
    json_array_foreach (triggered.tags, index, tag)
        if (find_trigger(&triggered, tag) == triggered.triggers.count)
            return refuse(reader, "tag", "begins with none of the triggers");
    uint32_t begin = ebnf_begin(tree);
    if (needed && !ebnf_add(tree, read_tags(reader, &triggered, triggered.triggers.count)))
        return EBNF_NONE;
    if (needed && once)
        return ebnf_end(tree, begin, EBNF_SEQUENCE);
    uint32_t one = read_triggered_once(reader, &triggered, &markers);
    if (!once)
        one = ebnf_repeat(tree, one, 0, RULES_UNBOUNDED);
    if (!ebnf_add(tree, one) || !add_markers(reader, json_object_get(form, "triggers"), &markers)
        || !ebnf_add(tree, free_text(reader, &markers, 0)))
        return EBNF_NONE;
    return ebnf_end(tree, begin, once ? EBNF_CHOICE : EBNF_SEQUENCE);
}

static uint32_t read_separated(struct reader *reader, const json_t *form, const struct markers *outer)
{
    struct ebnf *tree = reader->tree;
    struct triggered tags = { .tags = json_object_get(form, "tags") };
    struct bytes separator;
    if (!get_text(reader, form, "tags_with_separator", "separator", &separator) || !read_rests(reader, &tags, outer))
        return EBNF_NONE;
    uint32_t begin = ebnf_begin(tree), more;
    if (!ebnf_add(tree, read_tags(reader, &tags, 0)))
        return EBNF_NONE;
    if (!json_is_true(json_object_get(form, "stop_after_first"))) {
        more = ebnf_begin(tree);
        if (!ebnf_add(tree, ebnf_text(tree, separator)) || !ebnf_add(tree, read_tags(reader, &tags, 0))
            || !ebnf_add(tree, ebnf_repeat(tree, ebnf_end(tree, more, EBNF_SEQUENCE), 0, RULES_UNBOUNDED)))
            return EBNF_NONE;
    }
    uint32_t node = ebnf_end(tree, begin, EBNF_SEQUENCE);
    return json_is_true(json_object_get(form, "at_least_one")) ? node : ebnf_repeat(tree, node, 0, 1);
}

// ---- all forms ------------------------------------------------------------------------------------------------------

static const struct {
    const char *type;
    uint32_t (*read)(struct reader *reader, const json_t *form, const struct markers *outer);
    const char *known[6];
} forms[] = {
    { "const_string", read_const, { "value" } },
    { "json_schema", read_schema, { "json_schema", "style" } },
    { "regex", read_regex, { "pattern" } },
    { "any_text", read_any_text, { "excludes" } },
    { "sequence", read_sequence, { "elements" } },
    { "or", read_or, { "elements" } },
    { "optional", read_optional, { "content" } },
    { "star", read_star, { "content" } },
    { "plus", read_plus, { "content" } },
    { "repeat", read_repeat, { "min", "max", "content" } },
    { "tag", read_tag, { "begin", "content", "end" } },
    { "triggered_tags", read_triggered, { "triggers", "tags", "at_least_one", "stop_after_first", "excludes" } },
    { "tags_with_separator", read_separated, { "tags", "separator", "at_least_one", "stop_after_first" } },
};

static uint32_t read_form(struct reader *reader, const json_t *form, const struct markers *outer)
{
    const char *type = json_string_value(json_object_get(form, "type"));
    if (!type)
        return refuse(reader, "form", "is an object with a type");
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (strcmp(forms[i].type, type) != 0)
            continue;
        if (reader->depth == EBNF_DEPTH_MAX / 2)
            return refuse(reader, "forms", "are nested too deeply");
        reader->depth++;
        uint32_t node = check_keys(reader, form, type, forms[i].known) ? forms[i].read(reader, form, outer) : EBNF_NONE;
        reader->depth--;
        return node;
    }
    return refuse(reader, type,
                  "is a type that is not supported; const_string, json_schema, regex, any_text, "
                  "sequence, or, optional, plus, star, repeat, tag, triggered_tags and "
                  "tags_with_separator are");
}

bool structural_tag_read(struct ebnf *tree, const json_t *tag)
{
    static const char *const known[] = { "format", NULL }, *const older[] = { "structures", "triggers", NULL };
    struct reader reader = { .tree = tree };
    struct markers none = { .count = 0 };
    const json_t *form = json_object_get(tag, "format");
    uint32_t body;
    if (!check_keys(&reader, tag, "object", form ? known : older))
        return false;
    body = form ? read_form(&reader, form, &none) : read_triggered(&reader, tag, &none);
    tree->root = as_rule(&reader, body);
    return tree->root != EBNF_NONE;
}
