// SPDX-License-Identifier: Apache-2.0
#include "text/template/format.h"

#include "text/template/eval.h"
#include "text/template/print.h"
#include "text/template/unicode.h"

struct reader { // of a format string
    struct bytes text;
    size_t at;
};

static char peek(const struct reader *reader)
{
    return reader->at < reader->text.len ? reader->text.data[reader->at] : '\0';
}

static bool skip(struct reader *reader, char c)
{
    bool there = c && peek(reader) == c;
    reader->at += there;
    return there;
}

// One of the characters in `set`, which is passed; else 0.
static char skip_one_of(struct reader *reader, const char *set)
{
    char c = peek(reader);
    if (!c || !strchr(set, c))
        return 0;
    reader->at++;
    return c;
}

static struct bytes rest(const struct reader *reader) { return rest_of(reader->text, reader->at); }

// Digits, up to a limit above which it does not matter how many; -1: there are none.
static int64_t read_number(struct reader *reader)
{
    int64_t number = -1;
    for (char c; (c = peek(reader)) >= '0' && c <= '9'; reader->at++)
        number = number > FORMAT_WIDTH_MAX ? number : (number < 0 ? 0 : number) * 10 + (c - '0');
    return number;
}

static bool within_limits(struct render *render, const struct format_spec *spec, bool number)
{
    if (spec->width > FORMAT_WIDTH_MAX || (number && spec->precision > FORMAT_PRECISION_MAX)) {
        trouble(render, "a format asks for more than %d columns or %d digits", FORMAT_WIDTH_MAX, FORMAT_PRECISION_MAX);
        return false;
    }
    return true;
}

// What the conversions s, r and a make of a value.
static struct value converted(struct render *render, struct value value, char conversion)
{
    size_t mark = text_mark(render);
    if (conversion == 's')
        print_value(render, value);
    else
        print_repr(render, value);
    struct value text = text_take(render, mark);
    text.safe = value.safe;
    return text;
}

struct percent { // "%s" % values in the making
    struct render *render;
    struct reader reader;
    struct value values;
    size_t used; // of a tuple, or 1 once a single value was used
    bool mapping, safe;
};

static struct value next_value(struct percent *percent)
{
    bool tuple = percent->values.type == VALUE_TUPLE;
    size_t count = tuple ? percent->values.list->count : 1;
    if (percent->used >= count)
        return trouble(percent->render, "there are fewer values than the format asks for");
    struct value value = tuple ? percent->values.list->items[percent->used] : percent->values;
    percent->used++;
    return value;
}

static struct value named_value(struct percent *percent)
{
    struct reader *reader = &percent->reader;
    size_t start = reader->at, depth = 1;
    while (reader->at < reader->text.len) {
        char c = reader->text.data[reader->at++];
        depth += c == '(' ? 1 : 0;
        if (c == ')' && --depth == 0)
            break;
    }
    if (depth || percent->values.type != VALUE_DICT)
        return trouble(percent->render, "a format with names takes a dict, and each name ends in ')'");
    percent->mapping = true;
    struct bytes name = { reader->text.data + start, reader->at - 1 - start };
    struct value *value = dict_find_name(percent->render, percent->values.dict, name);
    return value ? *value : trouble(percent->render, "the dict has no '%.*s'", shown_length(name), name.data);
}

static int64_t read_width(struct percent *percent, bool *negative)
{
    if (!skip(&percent->reader, '*'))
        return read_number(&percent->reader);
    struct value value = next_value(percent);
    if (!value_is_integral(value))
        return trouble(percent->render, "* in a format takes an integer"), 0;
    int64_t width = value_integer(value);
    *negative = width < 0;
    if (width > FORMAT_WIDTH_MAX || width < -FORMAT_WIDTH_MAX)
        return FORMAT_WIDTH_MAX + 1;
    return width < 0 ? -width : width;
}

static void percent_character(struct percent *percent, struct value value, struct format_spec *spec)
{
    struct render *render = percent->render;
    size_t mark = text_mark(render);
    if (value.type == VALUE_STRING && unicode_count(value.string) == 1)
        text_put(render, value.string);
    else if (value_is_integral(value) && value_integer(value) >= 0 && value_integer(value) <= 0x10FFFF)
        text_put_codepoint(render, (uint32_t)value_integer(value));
    else
        trouble(render, "%%c takes one character or its number");
    struct value text = text_take(render, mark);
    spec->precision = -1;
    if (within_limits(render, spec, false))
        format_text(render, text.string, spec);
}

static void percent_number(struct percent *percent, struct value value, struct format_spec *spec)
{
    struct render *render = percent->render;
    bool decimal = spec->type == 'd', whole = decimal || strchr("oxX", spec->type);
    if (!value_is_number(value) || (whole && !decimal && value.type == VALUE_FLOAT)) {
        trouble(render, "%%%c takes a number, not %s", spec->type, value_kind(value));
        return;
    }
    if (whole && value.type == VALUE_FLOAT) {
        if (!(value.number > -0x1p63 && value.number < 0x1p63)) {
            trouble(render, "%%d takes a number of at most 64 bits");
            return;
        }
        value = value_int((int64_t)value.number);
    }
    if (!within_limits(render, spec, true))
        return;
    if (!whole || spec->precision <= 0) {
        format_number(render, value, spec);
        return;
    }
    struct format_spec digits = *spec; // the precision of an integer is its least number of digits
    digits.width = spec->precision + (value_integer(value) < 0 || spec->sign);
    digits.zero = true;
    digits.align = 0;
    digits.fill = bytes_of("0");
    size_t mark = text_mark(render);
    format_number(render, value, &digits);
    struct value text = text_take(render, mark);
    spec->precision = -1;
    spec->align = spec->align ? spec->align : '>';
    format_text(render, text.string, spec);
}

static void percent_one(struct percent *percent)
{
    struct reader *reader = &percent->reader;
    struct format_spec spec = { .fill = bytes_of(" "), .align = '>', .precision = -1 };
    bool named = skip(reader, '('), left = false, negative = false;
    struct value value = named ? named_value(percent) : value_none();
    for (char flag; (flag = skip_one_of(reader, "#0- +"));) {
        spec.alternate |= flag == '#';
        spec.zero |= flag == '0';
        left |= flag == '-';
        if (flag == '+' || (flag == ' ' && !spec.sign))
            spec.sign = flag;
    }
    int64_t width = read_width(percent, &left);
    spec.width = width < 0 ? 0 : width;
    if (skip(reader, '.')) {
        int64_t precision = read_width(percent, &negative);
        spec.precision = precision < 0 || negative ? 0 : precision;
    }
    skip_one_of(reader, "hlL");
    spec.type = skip_one_of(reader, "diouxXeEfFgGcrsa%");
    if (spec.type == '%') {
        text_put_byte(percent->render, '%');
        return;
    }
    if (!spec.type) {
        trouble(percent->render, "a format has a %% without a known letter behind it");
        return;
    }
    spec.align = left ? '<' : '>';
    if (!named)
        value = next_value(percent);
    if (percent->render->failed)
        return;
    if (strchr("rsa", spec.type)) {
        struct value text = converted(percent->render, value, spec.type);
        if (percent->safe)
            text = escape_html(percent->render, text);
        if (within_limits(percent->render, &spec, false))
            format_text(percent->render, text.string, &spec);
    } else if (spec.type == 'c') {
        percent_character(percent, value, &spec);
    } else {
        spec.type = spec.type == 'i' || spec.type == 'u' ? 'd' : spec.type;
        spec.fill = bytes_of(spec.zero && !left ? "0" : " ");
        spec.align = left ? '<' : spec.zero ? '=' : '>';
        percent_number(percent, value, &spec);
    }
}

struct value format_percent(struct render *render, struct value format, struct value values)
{
    struct percent percent = { .render = render, .reader.text = format.string, .values = values, .safe = format.safe };
    size_t mark = text_mark(render);
    while (percent.reader.at < format.string.len && !render->failed) {
        struct bytes here = rest(&percent.reader);
        const char *sign = memchr(here.data, '%', here.len);
        size_t plain = sign ? (size_t)(sign - here.data) : here.len;
        text_put(render, (struct bytes){ here.data, plain });
        percent.reader.at += plain + (sign != NULL);
        if (sign && render_step(render, 1))
            percent_one(&percent);
    }
    size_t given = values.type == VALUE_TUPLE ? values.list->count : 1;
    bool may_be_left = values.type == VALUE_DICT || values.type == VALUE_LIST || values.type == VALUE_RANGE
        || values.type == VALUE_UNDEFINED; // what has items may be meant for names
    if (!percent.mapping && !may_be_left && percent.used < given)
        trouble(render, "there are more values than the format asks for");
    struct value text = text_take(render, mark);
    text.safe = format.safe;
    return text;
}

// Reads "[[fill]align][sign][#][0][width][grouping][.precision][type]"; false when something is left over.
static bool read_spec(struct bytes text, struct format_spec *spec)
{
    struct reader reader = { text, 0 };
    *spec = (struct format_spec){ .fill = bytes_of(" "), .precision = -1 };
    size_t first = 0;
    if (text.len)
        unicode_first(text, &first);
    if (first && first < text.len && strchr("<>=^", text.data[first])) {
        spec->fill = (struct bytes){ text.data, first };
        reader.at = first;
    }
    spec->align = skip_one_of(&reader, "<>=^");
    spec->sign = skip_one_of(&reader, "+- ");
    spec->alternate = skip(&reader, '#');
    spec->zero = skip(&reader, '0');
    if (spec->zero && !spec->align)
        spec->fill = bytes_of("0");
    int64_t width = read_number(&reader);
    spec->width = width < 0 ? 0 : width;
    spec->grouping = skip_one_of(&reader, ",_");
    if (skip(&reader, '.') && (spec->precision = read_number(&reader)) < 0)
        return false;
    spec->type = skip_one_of(&reader, "bcdeEfFgGnosxX%");
    return reader.at == text.len;
}

// Whether a value of this type can be written that way.
static bool spec_fits(const struct format_spec *spec, struct value value)
{
    bool as_float = spec->type && strchr("eEfFgG%", spec->type);
    if (value.type == VALUE_STRING)
        return (!spec->type || spec->type == 's') && !spec->sign && !spec->grouping && spec->align != '=';
    if (value.type == VALUE_FLOAT)
        return !spec->type || spec->type == 'n' || as_float;
    if (value_is_integral(value))
        return spec->type != 's' && spec->type != 'c' && (spec->precision < 0 || as_float);
    return false;
}

static void format_with(struct render *render, struct value value, struct bytes text)
{
    struct format_spec spec;
    if (!text.len) {
        print_value(render, value);
        return;
    }
    if (!read_spec(text, &spec)) {
        trouble(render, "'%.*s' is no format", shown_length(text), text.data);
        return;
    }
    if (!spec_fits(&spec, value))
        trouble(render, "the format '%.*s' does not go with %s", shown_length(text), text.data, value_kind(value));
    else if (!within_limits(render, &spec, value.type != VALUE_STRING))
        return;
    else if (value.type == VALUE_STRING)
        format_text(render, value.string, &spec);
    else
        format_number(render, value, &spec);
}

struct braces { // "{}".format(values) in the making
    struct render *render;
    const struct arguments *arguments;
    size_t automatic; // number of the next {}
    bool numbered, safe;
};

static struct value braces_base(struct braces *braces, struct bytes name)
{
    struct render *render = braces->render;
    struct reader reader = { name, 0 };
    int64_t index = read_number(&reader);
    if (reader.at == name.len) {
        bool by_itself = !name.len;
        if (by_itself ? braces->numbered : braces->automatic > 0)
            return trouble(render, "a format mixes {} and {0}");
        braces->numbered |= !by_itself;
        size_t at = by_itself ? braces->automatic++ : (size_t)index;
        if (at >= braces->arguments->count)
            return trouble(render, "there are fewer values than the format asks for");
        return braces->arguments->values[at];
    }
    for (size_t i = 0; i < braces->arguments->keyword_count && render_step(render, 1); i++)
        if (bytes_equal(braces->arguments->keywords[i].name, name))
            return braces->arguments->keywords[i].value;
    return trouble(render, "the format has no value for '%.*s'", shown_length(name), name.data);
}

// A field such as "0.name[key]".
static struct value braces_field(struct braces *braces, struct bytes field)
{
    struct render *render = braces->render;
    size_t end = 0;
    while (end < field.len && field.data[end] != '.' && field.data[end] != '[')
        end++;
    struct value value = braces_base(braces, (struct bytes){ field.data, end });
    while (end < field.len && !render->failed) {
        bool item = field.data[end++] == '[';
        size_t start = end;
        while (end < field.len && (item ? field.data[end] != ']' : field.data[end] != '.' && field.data[end] != '['))
            end++;
        struct bytes name = { field.data + start, end - start };
        if (!name.len || (item && end == field.len))
            return trouble(render, "a field of a format is incomplete");
        end += item;
        struct reader reader = { name, 0 };
        int64_t index = read_number(&reader);
        bool number = item && reader.at == name.len;
        if (item)
            value = attribute_item(render, value, number ? value_int(index) : value_string(name));
        else
            value = attribute_get(render, value, name);
    }
    return value;
}

static struct value braces_text(struct braces *braces, struct bytes format, int level);

static void braces_one(struct braces *braces, struct bytes inside, int level)
{
    struct render *render = braces->render;
    size_t colon = 0, brackets = 0;
    while (colon < inside.len && (brackets || (inside.data[colon] != ':' && inside.data[colon] != '!'))) {
        brackets += inside.data[colon] == '[';
        brackets -= brackets && inside.data[colon] == ']';
        colon++;
    }
    struct value value = braces_field(braces, (struct bytes){ inside.data, colon });
    char conversion = 0;
    if (colon < inside.len && inside.data[colon] == '!') {
        conversion = colon + 1 < inside.len ? inside.data[colon + 1] : '?';
        colon += 2;
        if (!strchr("rsa", conversion) || (colon < inside.len && inside.data[colon] != ':'))
            trouble(render, "a format has a conversion that is not !r, !s or !a");
    }
    struct bytes spec = bytes_of("");
    if (colon + 1 < inside.len)
        spec = braces_text(braces, rest_of(inside, colon + 1), level + 1).string;
    if (render->failed)
        return;
    size_t mark = text_mark(render);
    if (conversion)
        value = converted(render, value, conversion);
    format_with(render, value, spec);
    if (braces->safe && !value.safe)
        print_value(render, escape_html(render, text_take(render, mark)));
}

// Bytes of a field with its braces at the start of `text`; 0 when it is not one that is closed.
static size_t field_length(struct bytes text)
{
    int depth = 0;
    for (size_t i = 0; i < text.len; i++) {
        depth += (text.data[i] == '{') - (text.data[i] == '}');
        if (depth <= 0)
            return depth < 0 ? 0 : i + 1;
    }
    return 0;
}

static struct value braces_text(struct braces *braces, struct bytes format, int level)
{
    struct render *render = braces->render;
    size_t mark = text_mark(render);
    if (level > 2)
        trouble(render, "a format nests its fields too deeply");
    for (size_t at = 0; at < format.len && render_step(render, 1);) {
        char c = format.data[at];
        if (c != '{' && c != '}') {
            size_t end = at;
            while (end < format.len && format.data[end] != '{' && format.data[end] != '}')
                end++;
            text_put(render, (struct bytes){ format.data + at, end - at });
            at = end;
        } else if (at + 1 < format.len && format.data[at + 1] == c) {
            text_put_byte(render, c);
            at += 2;
        } else {
            size_t length = field_length(rest_of(format, at));
            if (!length)
                return text_drop(render, mark), trouble(render, "a format has a single '%c'", c);
            braces_one(braces, (struct bytes){ format.data + at + 1, length - 2 }, level);
            at += length;
        }
    }
    return text_take(render, mark);
}

struct value format_braces(struct render *render, struct value format, const struct arguments *arguments)
{
    struct braces braces = { .render = render, .arguments = arguments, .safe = format.safe };
    struct value text = braces_text(&braces, format.string, 1);
    text.safe = format.safe;
    return text;
}
