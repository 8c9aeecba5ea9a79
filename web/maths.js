// ---- TeX as MathML --------------------------------------------------------------------------------------------------

// A recursive-descent parser of the TeX that models write. It refuses nothing: a command that is not known is shown as
// it is written, a group that is not closed ends with the text, since it may be still on its way.

const TOKEN = /\\[a-zA-Z]+\*?|\\[^]|\d+(?:[.,]\d+)*|[^\s]/gu;
const math = (tag, attributes = {}, ...children) => makeIn(SPACES.math, tag, attributes, children);
const row = nodes => nodes.length === 1 ? nodes[0] : math('mrow', {}, ...nodes);
const operator = (text, more = {}) => math('mo', more, text);
const identifier = (text, upright = false) => math('mi', upright ? { mathvariant: 'normal' } : {}, text);
const blank = em => math('mspace', { width: `${em.toFixed(3)}em` });

const MATRICES = { // what stands to the left and right, how columns are aligned
    matrix: ['', ''], pmatrix: ['(', ')'], bmatrix: ['[', ']'], Bmatrix: ['{', '}'], vmatrix: ['|', '|'], Vmatrix: ['‖', '‖'], smallmatrix: ['', ''],
    cases: ['{', '', 'left'], rcases: ['', '}', 'left'], array: ['', ''], gathered: ['', ''], gather: ['', ''], equation: ['', ''],
    aligned: ['', '', 'sides'], align: ['', '', 'sides'], split: ['', '', 'sides'], alignat: ['', '', 'sides'], eqnarray: ['', '', 'sides'],
};

// ---- reading tokens -------------------------------------------------------------------------------------------------

const peek = tex => tex.tokens[tex.at];
const take = tex => tex.tokens[tex.at++];
const takeIf = (tex, token) => peek(tex) === token && Boolean(++tex.at);

// The tokens' text between braces, blanks included: what is said in words, names of environments.
function takeText(tex) {
    if (peek(tex) !== '{') return peek(tex) === undefined ? '' : take(tex);
    const from = tex.offsets[tex.at] + 1;
    for (let depth = 0; tex.at < tex.tokens.length;) {
        const token = take(tex);
        depth += (token === '{') - (token === '}');
        if (!depth) return tex.source.slice(from, tex.offsets[tex.at - 1]);
    }
    return tex.source.slice(from);
}

const ENDS = new Set([undefined, '}', '&', '\\\\', '\\end', '\\right', '\\middle']); // of what an argument can be part of

// One argument: a group, or the next atom, which of a number is its first digit.
function argument(tex) {
    if (takeIf(tex, '{')) return row(atomsTo(tex, '}'));
    if (ENDS.has(peek(tex))) return math('mrow');
    const [, digit, rest] = /^(\d)(.+)/.exec(peek(tex)) ?? [];
    if (!digit) return atom(tex);
    tex.tokens[tex.at] = rest;
    return math('mn', {}, digit);
}

const option = tex => takeIf(tex, '[') ? row(atomsTo(tex, ']')) : null;

function atomsTo(tex, end) {
    const nodes = [];
    while (peek(tex) !== undefined && peek(tex) !== end && !(end !== '}' && ['}', '\\end', '\\right'].includes(peek(tex)))) nodes.push(scripted(tex));
    if (end) takeIf(tex, end);
    return nodes;
}

// ---- commands -------------------------------------------------------------------------------------------------------

function fraction(tex, attributes = {}) {
    const above = argument(tex), below = argument(tex);
    return math('mfrac', attributes, above, below);
}

function root(tex) {
    const index = option(tex), radicand = argument(tex);
    return index ? math('mroot', {}, radicand, index) : math('msqrt', {}, radicand);
}

// Text may have formulas of its own between dollars.
function wordsOf(tex, attributes = {}) {
    const parts = takeText(tex).split(/(?<!\\)\$/);
    return row(parts.map((part, i) => i % 2 ? row(parse(part)) : math('mtext', attributes, part.replace(/\\([%$&#_{} ])/g, '$1').replace(/^ | $/g, '\u00a0'))));
}

const fenceOf = token => token === '.' ? '' : token?.startsWith('\\') ? FENCES[token.slice(1)] ?? OPERATORS[token.slice(1)] ?? '' : token ?? '';
const fence = (text, form) => text ? [operator(text, { fence: 'true', stretchy: 'true', form })] : [];

function leftRight(tex) {
    const left = fenceOf(take(tex)), inner = [];
    while (peek(tex) !== undefined && peek(tex) !== '\\right' && peek(tex) !== '}') {
        if (takeIf(tex, '\\middle')) inner.push(...fence(fenceOf(take(tex)), 'infix'));
        else inner.push(scripted(tex));
    }
    const right = takeIf(tex, '\\right') ? fenceOf(take(tex)) : '';
    return math('mrow', {}, ...fence(left, 'prefix'), ...inner, ...fence(right, 'postfix'));
}

function cells(tex) {
    const rows = [[[]]];
    while (peek(tex) !== undefined && peek(tex) !== '\\end' && peek(tex) !== '}') {
        if (takeIf(tex, '&')) rows.at(-1).push([]);
        else if (takeIf(tex, '\\\\') || takeIf(tex, '\\cr')) {
            rows.push([[]]);
            if (peek(tex) === '[') option(tex); // extra height
        } else if (!takeIf(tex, '\\hline')) rows.at(-1).at(-1).push(scripted(tex));
    }
    if (rows.length > 1 && rows.at(-1).length === 1 && !rows.at(-1)[0].length) rows.pop();
    return rows;
}

function environment(tex) {
    const name = takeText(tex).replace('*', ''), [left, right, align] = MATRICES[name] ?? ['', ''];
    const given = ['array', 'alignat'].includes(name) ? takeText(tex).replace(/[^lcr]/g, '') : '';
    const rows = cells(tex);
    if (takeIf(tex, '\\end')) takeText(tex);
    const side = i => align === 'sides' ? (i % 2 ? 'left' : 'right') : align ?? ({ l: 'left', r: 'right' })[given[i]];
    const table = math('mtable', { ...(align === 'sides' && { displaystyle: 'true', class: 'sides' }) }, ...rows.map(row => math('mtr', {},
        ...row.map((nodes, i) => math('mtd', side(i) ? { class: side(i) } : {}, ...nodes)))));
    return left || right ? math('mrow', {}, ...fence(left, 'prefix'), table, ...fence(right, 'postfix')) : table;
}

function negated(tex) {
    const node = argument(tex);
    node.textContent += '\u0338';
    return node;
}

const styled = name => tex => {
    const text = takeText(tex);
    return row(/^[A-Za-z0-9\s]*$/.test(text) ? [identifier(restyle(text.replace(/\s/g, ''), name), true)] : parse(text, name));
};

const COMMANDS = {
    frac: fraction, dfrac: tex => math('mstyle', { displaystyle: 'true' }, fraction(tex)), tfrac: tex => math('mstyle', { displaystyle: 'false' }, fraction(tex)),
    cfrac: fraction,
    binom: tex => math('mrow', {}, ...fence('(', 'prefix'), fraction(tex, { linethickness: '0' }), ...fence(')', 'postfix')),
    sqrt: root, left: leftRight, begin: environment, not: negated,
    text: wordsOf, textrm: wordsOf, textnormal: wordsOf, mbox: wordsOf, textit: tex => wordsOf(tex, { class: 'italic' }), textbf: tex => wordsOf(tex, { class: 'bold' }), texttt: wordsOf,
    mathrm: tex => identifier(takeText(tex).replace(/\s/g, ''), true),
    operatorname: tex => operatorName(takeText(tex)), 'operatorname*': tex => operatorName(takeText(tex)),
    overset: tex => { const over = argument(tex); return math('mover', {}, argument(tex), over); },
    underset: tex => { const under = argument(tex); return math('munder', {}, argument(tex), under); },
    substack: tex => { takeIf(tex, '{'); const rows = cells(tex); takeIf(tex, '}'); return math('mtable', {}, ...rows.map(([nodes]) => math('mtr', {}, math('mtd', {}, ...nodes)))); },
    boxed: tex => math('mrow', { class: 'boxed' }, argument(tex)),
    xrightarrow: tex => math('mover', {}, operator('→', { stretchy: 'true' }), argument(tex)), xleftarrow: tex => math('mover', {}, operator('←', { stretchy: 'true' }), argument(tex)),
    pmod: tex => math('mrow', {}, blank(1), operator('('), identifier('mod', true), blank(.33), argument(tex), operator(')')),
    bmod: () => math('mrow', {}, blank(.22), identifier('mod', true), blank(.22)), mod: () => math('mrow', {}, blank(.5), identifier('mod', true), blank(.33)),
    tag: tex => math('mrow', {}, blank(2), math('mtext', {}, `(${takeText(tex)})`)),
    color: tex => { takeText(tex); return math('mrow'); }, label: tex => { takeText(tex); return math('mrow'); },
    phantom: tex => math('mphantom', {}, argument(tex)), middle: tex => operator(fenceOf(take(tex))),
};
COMMANDS.stackrel = COMMANDS.overset;
for (const name of Object.keys(STYLES)) COMMANDS[name] = styled(name);
for (const [name, mark] of Object.entries(ACCENTS))
    COMMANDS[name] = tex => math('mover', { accent: 'true' }, argument(tex), operator(mark, { stretchy: String(/wide|over/.test(name)) }));
for (const [name, mark] of Object.entries(UNDERS)) COMMANDS[name] = tex => math('munder', {}, argument(tex), operator(mark, { stretchy: 'true' }));
// Sizes and styles that the layout chooses by itself.
for (const name of ['displaystyle', 'textstyle', 'scriptstyle', 'limits', 'nolimits', 'nonumber', 'notag', 'big', 'Big', 'bigg', 'Bigg', 'bigl', 'bigr', 'Bigl', 'Bigr', 'biggl', 'biggr', 'Biggl', 'Biggr', 'bigm', 'right'])
    COMMANDS[name] = () => math('mrow');

const operatorName = name => math('mrow', {}, identifier(name, true), operator('\u2061'));

// name: without its backslash
function command(tex, name) {
    const own = table => Object.hasOwn(table, name) ? table[name] : undefined;
    if (own(COMMANDS)) return COMMANDS[name](tex);
    if (own(BLANKS) !== undefined) return blank(BLANKS[name]);
    if (own(LETTERS)) return identifier(LETTERS[name]);
    if (own(UPRIGHT)) return identifier(UPRIGHT[name], true);
    if (own(FENCES)) return operator(FENCES[name], { stretchy: 'false' });
    if (own(OPERATORS)) return operator(OPERATORS[name]);
    if (own(BIG)) return operator(BIG[name], { largeop: 'true', movablelimits: 'true' });
    if (own(INTEGRALS)) return operator(INTEGRALS[name], { largeop: 'true' });
    if (own(LIMIT_FUNCTIONS)) return operator(LIMIT_FUNCTIONS[name], { movablelimits: 'true', form: 'prefix' });
    if (FUNCTIONS.includes(name)) return operatorName(name);
    return math('mtext', { class: 'unknown' }, `\\${name}`);
}

// ---- atoms and their scripts ----------------------------------------------------------------------------------------

const ATOM_DEPTH_MOST = 60;
let atomDepth = 0;

function atom(tex) {
    if (atomDepth === ATOM_DEPTH_MOST) return math('mtext', { class: 'unknown' }, take(tex));
    atomDepth++;
    const node = atomOf(tex, take(tex));
    atomDepth--;
    return node;
}

function atomOf(tex, token) {
    if (token === '{') return row(atomsTo(tex, '}'));
    if (token === '&' || token === '\\\\') return math('mrow'); // outside of a matrix
    if (token.startsWith('\\')) return command(tex, token.slice(1).replace(/(?<=[a-z])\*$/, name => token === '\\operatorname*' ? name : ''));
    if (/^\d/.test(token)) return math('mn', {}, tex.style ? restyle(token, tex.style) : token);
    if (token === '~') return blank(BLANKS['~']);
    if (/^\p{L}/u.test(token)) return identifier(tex.style ? restyle(token, tex.style) : token, Boolean(tex.style));
    return operator(token === '-' ? '−' : token === '*' ? '∗' : token, '()[]|/'.includes(token) ? { stretchy: 'false' } : {});
}

const takesLimits = node => node.nodeName === 'mo' && node.getAttribute('movablelimits') === 'true'
    || ['munder', 'mover'].includes(node.nodeName) && /[⏟⏞]/.test(node.lastChild.textContent);

function primes(tex) {
    let marks = '';
    while (takeIf(tex, "'")) marks += '′';
    return marks && operator(marks);
}

// An atom with what stands below and above it, in whatever order that is written.
function scripted(tex) {
    const base = ['_', '^', "'"].includes(peek(tex)) ? math('mrow') : atom(tex);
    const belows = [], aboves = [];
    for (;;) {
        while (['\\limits', '\\nolimits'].includes(peek(tex))) take(tex);
        const marks = primes(tex);
        if (marks) aboves.push(marks);
        else if (takeIf(tex, '_')) belows.push(argument(tex));
        else if (takeIf(tex, '^')) aboves.push(argument(tex));
        else break;
    }
    const below = belows.length && row(belows), above = aboves.length && row(aboves);
    const [under, over, both] = takesLimits(base) ? ['munder', 'mover', 'munderover'] : ['msub', 'msup', 'msubsup'];
    if (below && above) return math(both, {}, base, below, above);
    return below ? math(under, {}, base, below) : above ? math(over, {}, base, above) : base;
}

function texOf(source, style = null) {
    const matches = [...source.matchAll(TOKEN)];
    return { source, style, tokens: matches.map(([token]) => token), offsets: matches.map(({ index }) => index), at: 0 };
}

function parse(source, style) {
    const tex = texOf(source, style), nodes = [];
    while (peek(tex) !== undefined) {
        if (['}', '\\end'].includes(peek(tex))) take(tex); // one too many
        else nodes.push(scripted(tex));
    }
    return nodes;
}

// Lines that stand in no environment are aligned where they say at what.
function linesOfMaths(source) {
    return [environment(texOf(`{${source.includes('&') ? 'aligned' : 'gathered'}}${source}`))];
}

// The element of a formula; its source goes along, so that it can be copied.
function maths(source, display) {
    const nodes = /\\\\/.test(source) && !source.includes('\\begin') ? linesOfMaths(source) : parse(source.trim());
    return math('math', { display: display ? 'block' : 'inline' }, math('semantics', {}, math('mrow', {}, ...nodes),
        math('annotation', { encoding: 'application/x-tex' }, source.trim())));
}

