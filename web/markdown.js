// ---- answers as text: the little of Markdown that models write -----------------------------------------------------

const FENCE = /^(\s*)(`{3,}|~{3,})\s*([\w+#.-]*)/, HEADING = /^#{1,6}\s+(.*)/, QUOTE = /^>\s?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])\s+(.*)/;
const INLINE = /`([^`\n]+)`|\*\*((?:[^*\n]|\*(?!\*))+)\*\*|(?<![\w*])\*(?=\S)([^*\n]+)\*(?!\w)/g;

const kindOf = line => FENCE.test(line) ? 'code' : HEADING.test(line) ? 'heading' : QUOTE.test(line) ? 'quote'
    : ITEM.test(line) ? 'list' : line.trim() ? 'paragraph' : '';

// An item of a list. Its mark is a sign, or a number (else NaN) and what follows that.
function itemOf(line) {
    const [, space, mark, text] = ITEM.exec(line);
    return { indent: space.replaceAll('\t', '    ').length, sign: mark.at(-1), number: parseInt(mark), text };
}

const isDeeper = (item, list) => item.indent > list.indent + 1;

// A list goes on with items of the same sign. One that counts up ends where a number falls back; one whose numbers are
// all the same leaves counting to the reader.
function goesOn(list, { sign, number }) {
    const goes = sign === list.sign && !(list.counts && number <= list.number);
    list.counts ||= number > list.number;
    list.number = number;
    return goes;
}

// Blocks of lines, each with its kind. A fence runs to its end, a list over indented lines and the lists within it, a
// heading is one line.
function blocksOf(text) {
    const blocks = [];
    let block = null, fence = null;
    for (const line of text.split('\n')) {
        if (fence) {
            if (line.trim() === fence) fence = block = null;
            else block.lines.push(line);
            continue;
        }
        const kind = kindOf(line), item = kind === 'list' ? itemOf(line) : null;
        const inItem = kind === 'paragraph' && block?.kind === 'list' && /^\s/.test(line);
        const sameKind = kind === block?.kind && kind !== 'heading' && kind !== 'code';
        const sameBlock = sameKind && (!item || isDeeper(item, block.list) || goesOn(block.list, item));
        if (inItem || sameBlock) block.lines.push(line);
        else if (kind) blocks.push(block = { kind, lines: [line], list: item });
        else if (block?.kind !== 'list') block = null; // a blank line does not end a list
        if (kind === 'code') fence = FENCE.exec(line)[2];
    }
    return blocks;
}

function inline(text) {
    const nodes = [];
    let end = 0;
    for (const match of text.matchAll(INLINE)) {
        const [all, code, strong, emphasis] = match;
        nodes.push(text.slice(end, match.index));
        nodes.push(code ? make('code', {}, code) : make(strong ? 'strong' : 'em', {}, ...inline(strong ?? emphasis)));
        end = match.index + all.length;
    }
    return [...nodes, text.slice(end)];
}

function codeBlock([opening, ...lines]) {
    const [, indent, , language] = FENCE.exec(opening);
    const text = lines.map(line => line.startsWith(indent) ? line.slice(indent.length) : line).join('\n');
    return make('div', { class: 'code' },
        make('div', {}, language, action('Copy', function () { copy(text, this); })),
        make('pre', { tabindex: 0 }, make('code', {}, text)));
}

// The lines of one list, with those within its items.
function list(lines) {
    const open = []; // the lists being written, outermost first
    const begin = (item, parent) => {
        const node = Number.isNaN(item.number) ? make('ul') : make('ol', { start: item.number });
        parent?.item.append(node);
        open.push({ ...item, node });
    };
    for (const line of lines) {
        if (!ITEM.test(line)) {
            open.at(-1).item.append('\n', ...inline(line.trim()));
            continue;
        }
        const item = itemOf(line);
        while (open.length > 1 && item.indent < open.at(-1).indent) open.pop();
        if (!open.length || isDeeper(item, open.at(-1))) begin(item, open.at(-1));
        else if (!goesOn(open.at(-1), item) && open.length > 1) {
            open.pop();
            begin(item, open.at(-1));
        }
        open.at(-1).item = make('li', {}, ...inline(item.text));
        open.at(-1).node.append(open.at(-1).item);
    }
    return open[0].node;
}

const RENDER = {
    code: codeBlock,
    list,
    heading: ([line]) => make(line.startsWith('###') ? 'h4' : 'h3', {}, ...inline(HEADING.exec(line)[1])),
    quote: lines => make('blockquote', {}, ...inline(lines.map(line => line.replace(QUOTE, '')).join('\n'))),
    paragraph: lines => make('p', {}, ...inline(lines.join('\n'))),
};

// Writes text into body; blocks that are there already stay, so that a long answer costs what its last block costs.
function render(body, text) {
    const blocks = blocksOf(text);
    body.sources ??= [];
    blocks.forEach((block, i) => {
        const source = `${block.kind}\n${block.lines.join('\n')}`;
        if (body.sources[i] === source) return;
        const node = RENDER[block.kind](block.lines);
        if (body.children[i]) body.children[i].replaceWith(node);
        else body.append(node);
        body.sources[i] = source;
    });
    while (body.children.length > blocks.length) body.lastChild.remove();
    body.sources.length = blocks.length;
}

