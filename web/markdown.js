// ---- Markdown: blocks -----------------------------------------------------------------------------------------------

// CommonMark's blocks with GitHub's tables and task lists. A line break in a paragraph is kept, as writers of chats mean
// it, and markup is text.

const FENCE = /^( *)(`{3,}|~{3,})\s*([^\s`{]*)/, HEADING = /^ {0,3}(#{1,6})(?:\s+(\S.*)?)?$/, QUOTE = /^ {0,3}> ?/;
const RULE = /^ {0,3}(?:(?:-\s*){3,}|(?:\*\s*){3,}|(?:_\s*){3,})$/, UNDERLINE = /^ {0,3}(=+|-{2,})\s*$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +(.*)|)$/, TASK = /^\[([ xX])\]\s+/;
const MATHS_LINE = /^\s*(\$\$|\\\[)/, MATHS_END = { $$: '$$', '\\[': '\\]' };

const indentOf = line => line.length - line.trimStart().length;
const startsBlock = line => FENCE.test(line) || HEADING.test(line) || QUOTE.test(line) || RULE.test(line) || ITEM.test(line) || MATHS_LINE.test(line);

// Each takes a block from the lines at `at`: { end, render }, or null where there is none. `open`: the last line still
// grows.

function codeBlock(lines, at) {
    const match = FENCE.exec(lines[at]);
    if (!match) return null;
    const [, indent, fence, language] = match;
    let end = at + 1;
    const closes = line => line.trim().startsWith(fence) && /^(`+|~+)$/.test(line.trim());
    while (end < lines.length && !closes(lines[end])) end++;
    const body = lines.slice(at + 1, end).map(line => line.slice(Math.min(indentOf(line), indent.length)));
    return { end: end + 1, render: () => codeNode(body.join('\n'), language) };
}

const codeNode = (text, language) => make('div', { class: 'code' },
    make('div', {}, make('span', {}, language || 'text'), iconAction('copy', 'Copy the code', undefined, { class: 'quiet small-icon copy-code' })),
    make('pre', { tabindex: 0, 'aria-label': language ? `Code, ${language}` : 'Code' }, make('code', {}, ...highlight(text, language))));

function headingBlock(lines, at, open) {
    const match = HEADING.exec(lines[at]);
    if (match) return { end: at + 1, render: last => make(`h${Math.min(match[1].length + 2, 6)}`, {}, ...inline((match[2] ?? '').trimEnd().replace(/(?<=\s)#+$/, '').trimEnd(), last && open)) };
    return null;
}

// Levels of the answer begin below the page's own.
const underlined = (text, mark) => () => make(mark === '=' ? 'h3' : 'h4', {}, ...inline(text));

function quoteBlock(lines, at, open) {
    let end = at;
    const goesOn = line => QUOTE.test(line) || (line.trim() && !startsBlock(line));
    while (end < lines.length && (end === at ? QUOTE.test(lines[end]) : goesOn(lines[end]))) end++;
    if (end === at) return null;
    const inner = lines.slice(at, end).map(line => line.replace(QUOTE, ''));
    return { end, render: last => make('blockquote', {}, ...renderAll(inner, last && open)) };
}

const ruleBlock = (lines, at, open) =>
    RULE.test(lines[at]) && !(open && at === lines.length - 1) ? { end: at + 1, render: () => make('hr') } : null;

function mathsBlock(lines, at, open) {
    const [, begin] = MATHS_LINE.exec(lines[at]) ?? [];
    if (!begin) return null;
    const from = lines[at].indexOf(begin) + begin.length, close = MATHS_END[begin];
    let end = at;
    const rest = i => i === at ? lines[i].slice(from) : lines[i];
    while (end < lines.length && !rest(end).includes(close)) end++;
    if (end === lines.length ? !open : rest(end).slice(rest(end).indexOf(close) + 2).trim()) return null; // text goes on behind it
    const source = Array.from({ length: Math.min(end + 1, lines.length) - at }, (_, i) => rest(at + i)).join('\n').split(close)[0];
    return { end: end + 1, render: () => make('div', { class: 'formula', tabindex: 0 }, maths(source, true)) };
}

// Cells are divided by bars that are neither escaped nor in code.
function cellsOf(line) {
    const bare = line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '');
    return (bare.match(/(?:\\.|`[^`]*`|[^|\\])+|(?<=\||^)(?=\|)/g) ?? ['']).map(cell => cell.trim().replaceAll('\\|', '|'));
}

const isDelimiters = (cells, count) => cells.length === count && cells.every(cell => /^:?-+:?$/.test(cell));
const alignOf = cell => ({ '::': 'center', ':': 'left', '-:': 'right' })[cell.replace(/^(:?)-+(:?)$/, (_, a, b) => b && !a ? '-:' : a + b)];

function tableBlock(lines, at, open) {
    if (!lines[at].includes('|')) return null;
    const begins = open && at === lines.length - 1 && /^\s*\|/.test(lines[at]); // its second line is still to come
    const half = open && at === lines.length - 2 && /^[\s|:-]*$/.test(lines[at + 1]) && /^\s*\|/.test(lines[at]);
    const isTable = /^[\s|:-]*-[\s|:-]*$/.test(lines[at + 1] ?? '') && isDelimiters(cellsOf(lines[at + 1]), cellsOf(lines[at]).length);
    if (!begins && !half && !isTable) return null;
    let end = at + 2;
    while (end < lines.length && lines[end].trim() && (lines[end].includes('|') || !startsBlock(lines[end]))) end++;
    return { end, render: last => tableNode(lines.slice(at, end), last && open) };
}

function tableNode([head, delimiters = '', ...rows], open) {
    const columns = cellsOf(head), aligns = cellsOf(delimiters).map(alignOf);
    const cell = (tag, text, i, growing) => make(tag, { ...(aligns[i] && { class: aligns[i] }), ...(tag === 'th' && { scope: 'col' }) }, ...inline(text, growing));
    const body = rows.map((row, r) => {
        const cells = cellsOf(row), growing = open && r === rows.length - 1;
        return make('tr', {}, ...columns.map((_, i) => cell('td', cells[i] ?? '', i, growing && i === cells.length - 1)));
    });
    return make('div', { class: 'table', tabindex: 0, role: 'region', 'aria-label': 'Table' }, make('table', {},
        make('thead', {}, make('tr', {}, ...columns.map((text, i) => cell('th', text, i, open && !rows.length)))), make('tbody', {}, ...body)));
}

// ---- lists ----------------------------------------------------------------------------------------------------------

// An item's mark is a sign, or a number (else NaN) and what follows that.
function itemOf(line) {
    const [, space, mark, text = ''] = ITEM.exec(line);
    return { indent: space.length, offset: space.length + mark.length + 1, sign: mark.at(-1), number: parseInt(mark), text };
}

// A list goes on with items of the same sign. One that counts up ends where a number falls back; one whose numbers are
// all the same leaves counting to the reader.
function goesOn(list, { sign, number }) {
    const goes = sign === list.sign && !(list.counts && number <= list.number);
    list.counts ||= number > list.number;
    list.number = number;
    return goes;
}

// Lines of an item: those that are indented more than its mark, and paragraphs that simply go on. A fence runs to its end.
function endOfItem(lines, at, { indent }) {
    let end = at + 1, fence = null;
    for (; end < lines.length; end++) {
        const line = lines[end], deeper = indentOf(line) > indent + 1;
        if (fence) {
            if (line.trim() === fence) fence = null;
        } else if (!line.trim()) {
            const next = lines.slice(end).find(other => other.trim());
            if (next === undefined || indentOf(next) <= indent + 1) break;
        } else if (!deeper && (startsBlock(line) || !lines[end - 1].trim())) break;
        else if (deeper && FENCE.test(line)) fence = FENCE.exec(line)[2];
    }
    return end;
}

function listBlock(lines, at, open) {
    if (!ITEM.test(lines[at]) || (open && at === lines.length - 1 && !itemOf(lines[at]).text)) return null;
    const list = { ...itemOf(lines[at]), items: [], loose: false }, first = list.number;
    let end = at;
    for (let next = at; next < lines.length && ITEM.test(lines[next]) && !RULE.test(lines[next]);) {
        const item = itemOf(lines[next]);
        if (next !== at && !goesOn(list, item)) break;
        end = endOfItem(lines, next, item);
        const rest = lines.slice(next + 1, end).map(line => line.slice(Math.min(indentOf(line), item.offset)));
        list.items.push([item.text, ...rest]);
        for (next = end; next < lines.length && !lines[next].trim();) next++;
        list.loose ||= next > end && next < lines.length && ITEM.test(lines[next]) && itemOf(lines[next]).indent <= list.indent + 1;
    }
    return { end, render: last => listNode(list, first, last && open) };
}

function itemNode([text, ...rest], open) {
    const task = TASK.exec(text), done = task?.[1] !== ' ';
    const nodes = renderAll([task ? text.slice(task[0].length) : text, ...rest], open);
    if (nodes[0]?.nodeName === 'P') nodes.splice(0, 1, ...nodes[0].childNodes); // its first line needs no paragraph
    const box = task && make('input', { type: 'checkbox', disabled: '', 'aria-label': done ? 'done' : 'to do', ...(done && { checked: '' }) });
    return make('li', task ? { class: 'task' } : {}, ...box ? [box, ' '] : [], ...nodes);
}

function listNode({ items, loose }, number, open) {
    const attributes = { ...(loose && { class: 'loose' }), ...(!Number.isNaN(number) && { start: number }) };
    return make(Number.isNaN(number) ? 'ul' : 'ol', attributes, ...items.map((item, i) => itemNode(item, open && i === items.length - 1)));
}

// ---- all blocks -----------------------------------------------------------------------------------------------------

function paragraphBlock(lines, at, open) {
    let end = at + 1;
    for (; end < lines.length && lines[end].trim(); end++) {
        const [, mark] = UNDERLINE.exec(lines[end]) ?? [];
        if (mark && !(open && end === lines.length - 1)) return { end: end + 1, render: underlined(lines.slice(at, end).join('\n'), mark[0]) };
        if (startsBlock(lines[end]) || tableBlock(lines, end, open)) break;
    }
    const text = lines.slice(at, end).map(line => line.trim()).join('\n');
    return { end, render: last => make('p', {}, ...inline(text, last && open)) };
}

const BLOCKS = [codeBlock, headingBlock, quoteBlock, ruleBlock, mathsBlock, tableBlock, listBlock, paragraphBlock];

// { source, render } of each block. Rendering is told whether the block is the last, which may still grow.
function blocksOf(lines, open) {
    const blocks = [];
    for (let at = 0; at < lines.length;) {
        let block = null;
        if (lines[at].trim()) for (const take of BLOCKS) block ??= take(lines, at, open);
        const end = block?.end ?? at + 1;
        if (block) blocks.push({ source: lines.slice(at, end).join('\n'), render: block.render });
        at = end;
    }
    return blocks;
}

const DEPTH_MOST = 24; // of quotes and lists within each other; what is deeper is plain
let depth = 0;

function renderAll(lines, open) {
    if (depth === DEPTH_MOST) return [make('p', {}, lines.join('\n'))];
    depth++;
    const blocks = blocksOf(lines, open);
    const nodes = blocks.map(({ render }, i) => render(i === blocks.length - 1));
    depth--;
    return nodes;
}

// Tabs that indent are four blanks, but in code.
function linesOf(text) {
    let fence = null;
    return text.split('\n').map(line => {
        const [, , mark] = FENCE.exec(line.trimStart()) ?? [];
        if (fence ? line.trim() === fence : mark) fence = fence ? null : mark;
        else if (fence) return line;
        return line.replace(/^[ \t]+/, space => space.replaceAll('\t', '    '));
    });
}

// Writes text into an element. Blocks that are there already stay, so that a long answer costs what its last block costs.
function render(body, text, open = false) {
    const blocks = blocksOf(linesOf(text), open);
    body.sources ??= [];
    blocks.forEach((block, i) => {
        const last = i === blocks.length - 1, source = `${last && open}\n${block.source}`, old = body.children[i];
        if (body.sources[i] === source) return;
        const node = block.render(last);
        if (!old) body.append(node);
        else if (isAlike(old, node)) patch(old, node);
        else old.replaceWith(node);
        body.sources[i] = source;
    });
    while (body.children.length > blocks.length) body.lastChild.remove();
    body.sources.length = blocks.length;
}

