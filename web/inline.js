// ---- Markdown within a line -----------------------------------------------------------------------------------------

// Text is `open` while it still grows: a mark without its end then reaches to the end of the text, and marks that have
// only begun are not shown. So a bold word is bold from its first letter on, and nothing jumps when its end comes.

const LINK_SCHEMES = /^(https?:|mailto:)/i;
const ESCAPED = /\\([\\`*_{}[\]()<>#+\-.!|~$&"'/:;,?@^=%])/y;
const BREAK = /<br\s*\/?>/iy;
const LINK = /(!?)\[((?:\\.|\[[^\]\n]*\]|[^[\]\\\n])*)\]\(\s*<?((?:[^\s()<>]|\([^\s()]*\))*)>?(?:\s+["'(][^\n]*?["')])?\s*\)/y;
const ADDRESS = /<?(https?:\/\/[^\s<>`]*[^\s<>`.,;:!?'")\]*_~])>?/iy;
const HALF_LINK = /!?\[((?:\\.|[^[\]\\\n])*)(?:\](?:\([^)\n]*)?)?$/y;
const HALF_MARK = /(?:[*_~`$]{1,3}|!?\[|\\)$/;
const WORD = /[\p{L}\p{N}_]/u;

// [how it begins and ends, what it becomes]; the longer ones first.
const MARKS = [
    ['***', content => make('strong', {}, make('em', {}, ...content))], ['**', content => make('strong', {}, ...content)],
    ['__', content => make('strong', {}, ...content)], ['~~', content => make('del', {}, ...content)],
    ['*', content => make('em', {}, ...content)], ['_', content => make('em', {}, ...content)],
];
// [begin, end, whether it stands on a line of its own]
const MATHS = [['$$', '$$', true], ['\\[', '\\]', true], ['\\(', '\\)', false]];
const DOLLARS = /\$(?![\s$])((?:\\.|[^\\$\n])+?)(?<!\s)\$(?!\d)/y;

const matchAt = (regex, text, at) => {
    regex.lastIndex = at;
    return regex.exec(text);
};
const isWord = character => character !== undefined && WORD.test(character);

// Where a run of backticks ends that begins at `at`, or -1.
function endOfCode(text, at) {
    const [ticks] = matchAt(/`+/y, text, at);
    for (let end = text.indexOf(ticks, at + ticks.length); end >= 0; end = text.indexOf(ticks, end)) {
        const [run] = matchAt(/`+/y, text, end);
        if (run.length === ticks.length) return end;
        end += run.length;
    }
    return -1;
}

// Where the code that begins at `at` is over, or the backticks that begin none.
function pastCode(text, at) {
    const end = endOfCode(text, at), [ticks] = matchAt(/`+/y, text, at);
    return (end < 0 ? at : end) + ticks.length;
}

// Where a mark that opened before `at` is closed, or -1. Escapes, code and the `**` within `*` are passed over.
function endOfMark(text, at, mark) {
    const closes = i => text.startsWith(mark, i) && i > at && !/\s/.test(text[i - 1]) && !(mark[0] === '_' && isWord(text[i + mark.length]));
    for (let i = at; i < text.length; i++) {
        if (text[i] === '\\') i++;
        else if (text[i] === '`') i = pastCode(text, i) - 1;
        else if (mark === '*' && text.startsWith('**', i)) i = Math.max(endOfMark(text, i + 2, '**'), i) + 1;
        else if (closes(i)) return i;
    }
    return -1;
}

function codeAt(text, at, open) {
    if (text[at] !== '`') return null;
    const [ticks] = matchAt(/`+/y, text, at), end = endOfCode(text, at);
    if (end < 0 && !open) return { end: at + ticks.length, nodes: [ticks] };
    const code = text.slice(at + ticks.length, end < 0 ? text.length : end);
    return { end: end < 0 ? text.length : end + ticks.length, nodes: [make('code', {}, /^ .*\S.* $/.test(code) ? code.slice(1, -1) : code)] };
}

function mathsAt(text, at, open) {
    for (const [begin, end, display] of MATHS) {
        if (!text.startsWith(begin, at)) continue;
        const close = text.indexOf(end, at + begin.length);
        if (close < 0 && !open) continue;
        const stop = close < 0 ? text.length : close;
        return { end: stop + end.length, nodes: [maths(text.slice(at + begin.length, stop), display)] };
    }
    const dollars = matchAt(DOLLARS, text, at);
    return dollars && { end: at + dollars[0].length, nodes: [maths(dollars[1], false)] };
}

const anchor = (href, ...nodes) => make('a', { href, target: '_blank', rel: 'noopener noreferrer' }, ...nodes);

// Pictures are links: the page loads nothing from elsewhere.
function linkAt(text, at, open) {
    const link = matchAt(LINK, text, at), address = !link && !isWord(text[at - 1]) && matchAt(ADDRESS, text, at);
    if (address) return { end: at + address[0].length, nodes: [anchor(address[1], address[1])] };
    if (!link) {
        const half = open && matchAt(HALF_LINK, text, at);
        return half && half[1] ? { end: text.length, nodes: inline(half[1], open) } : null;
    }
    const [all, picture, label, href] = link, nodes = inline(label || (picture && 'picture') || href, false);
    return { end: at + all.length, nodes: LINK_SCHEMES.test(href) ? [anchor(href, ...nodes)] : nodes };
}

function markAt(text, at, open) {
    for (const [mark, wrap] of MARKS) {
        const from = at + mark.length;
        if (!text.startsWith(mark, at) || /\s|^$/.test(text[from] ?? '') || (mark[0] === '_' && isWord(text[at - 1]))) continue;
        const end = endOfMark(text, from, mark), reaches = end < 0 && open && !isWord(text[at - 1]);
        if (end < 0 && !reaches) continue;
        return { end: end < 0 ? text.length : end + mark.length, nodes: [wrap(inline(text.slice(from, end < 0 ? text.length : end), reaches))] };
    }
    return null;
}

const plainAt = (text, at) => {
    const escaped = matchAt(ESCAPED, text, at), lineBreak = matchAt(BREAK, text, at);
    if (escaped) return { end: at + 2, nodes: [escaped[1]] };
    return lineBreak && { end: at + lineBreak[0].length, nodes: ['\n'] };
};

const AT = [[/[`]/, codeAt], [/[$\\]/, mathsAt], [/[\\<]/, plainAt], [/[[!<hH]/, linkAt], [/[*_~]/, markAt]];

// The nodes and strings of a text; strings next to each other are one.
function inline(text, open = false) {
    const nodes = [];
    const add = node => {
        if (typeof node === 'string' && typeof nodes.at(-1) === 'string') nodes[nodes.length - 1] += node;
        else nodes.push(node);
    };
    if (open) text = text.replace(HALF_MARK, mark => mark[0] === '$' ? mark : '');
    for (let at = 0; at < text.length;) {
        let found = null;
        for (const [first, parse] of AT) if (!found && first.test(text[at])) found = parse(text, at, open);
        if (found) found.nodes.forEach(add);
        else add(text[at]);
        at = found?.end ?? at + 1;
    }
    return nodes;
}

