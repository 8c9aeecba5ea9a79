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

const plainAt = (text, at) => {
    const escaped = matchAt(ESCAPED, text, at), lineBreak = matchAt(BREAK, text, at);
    if (escaped) return { end: at + 2, nodes: [escaped[1]] };
    return lineBreak && { end: at + lineBreak[0].length, nodes: ['\n'] };
};

const AT = [[/[`]/, codeAt], [/[$\\]/, mathsAt], [/[\\<]/, plainAt], [/[[!<hH]/, linkAt]];

// ---- emphasis -------------------------------------------------------------------------------------------------------

// CommonMark's algorithm: runs of marks are put on a stack, and one that closes takes the nearest that opened. So the
// time is linear in what models write, garbage included.

const PLAIN = /[^][^`$\\<[!hH*_~]*/y, MARK = /\*+|_+|~~/y;

// A run of marks at `at`: whether it may open or close, by what is beside it.
function markAt(text, at) {
    const [run] = matchAt(MARK, text, at) ?? [], end = at + run?.length, [before, after] = [text[at - 1], text[end]];
    if (!run) return null;
    const within = run[0] === '_' && isWord(before) && isWord(after);
    return {
        end, mark: run[0], length: run.length, opens: after !== undefined && !/\s/.test(after) && !(run[0] === '_' && isWord(before)) && !within,
        closes: before !== undefined && !/\s/.test(before) && !(run[0] === '_' && isWord(after)), intraword: isWord(before),
    };
}

const emphasis = (mark, length, nodes) => make(mark === '~' ? 'del' : length === 2 ? 'strong' : 'em', {}, ...nodes);
const plainMarks = out => out.map(node => node.mark ? node.mark.repeat(node.length) : node);

// Takes from `out` what an opening run and a closing one enclose; the rest of both stays to be matched.
function closeMark(out, stack, closing) {
    while (closing.length) {
        const place = stack.findLastIndex(at => out[at].mark === closing.mark);
        if (place < 0) return;
        const at = stack[place], opening = out[at], length = Math.min(2, opening.length, closing.length);
        stack.length = place;
        const node = emphasis(closing.mark, length, plainMarks(out.splice(at + 1)));
        opening.length -= length;
        closing.length -= length;
        if (opening.length) stack.push(at);
        else out.pop();
        out.push(node);
    }
}

// Marks whose end is still on its way are closed where the text ends.
function closeOpen(out, stack) {
    for (const at of stack.reverse()) {
        const { mark, length, intraword } = out[at];
        if (intraword || at === out.length - 1) continue;
        const nodes = plainMarks(out.splice(at + 1));
        out[at] = emphasis(mark, Math.min(2, length), nodes);
    }
}

function addMark(out, stack, found) {
    if (found.closes) closeMark(out, stack, found);
    if (!found.length) return;
    if (found.opens) stack.push(out.length);
    out.push(found);
}

// The nodes and strings of a text.
function inline(text, open = false) {
    const out = [], stack = []; // stack: places in `out` of runs that may open
    if (open) text = text.replace(HALF_MARK, mark => mark[0] === '$' ? mark : '');
    for (let at = 0; at < text.length;) {
        const run = markAt(text, at);
        let found = run;
        if (run) addMark(out, stack, run);
        else for (const [first, parse] of AT) if (!found && first.test(text[at])) found = parse(text, at, open);
        if (!run && found) out.push(...found.nodes);
        const plain = found ? '' : matchAt(PLAIN, text, at)[0];
        if (plain) out.push(plain);
        at = found?.end ?? at + plain.length;
    }
    if (open) closeOpen(out, stack);
    return joinText(plainMarks(out));
}

// Strings next to each other become one.
function joinText(nodes) {
    const joined = [];
    for (const node of nodes)
        if (typeof node === 'string' && typeof joined.at(-1) === 'string') joined.push(joined.pop() + node);
        else joined.push(node);
    return joined;
}

