// ---- the plan ------------------------------------------------------------------------------------------------------

const swatch = colour => make('i', { class: 'swatch', style: `--colour: ${colour}` });
const colourOf = format => format ? `var(--${CSS.escape(format)}, var(--other))` : 'var(--faint)';
const formatKey = format => make('span', { class: 'key' }, swatch(colourOf(format)), format);

// How a layer's keys are changed before they are rounded, and what that brings to the error of its attention.
function transformText({ transform, transform_errors: errors }) {
    const [before, after] = [errors?.none, errors?.[transform]];
    return before > 0 && after > 0 ? `${transform}: attention error ${after.toFixed(3)} instead of ${before.toFixed(3)}` : transform;
}

// ranges: "0-2, 5"
function inRange(index, ranges) {
    const found = [...ranges.matchAll(/(\d+)(?:-(\d+))?/g)];
    return found.some(([, first, last = first]) => Number(first) <= index && index <= Number(last));
}

function attentionText({ attention, window, latent }) {
    const words = {
        full: 'full attention', window: `window of ${window} tokens`, mla: `latents of ${latent?.join(' + ')} channels`,
        state: 'a state', none: 'nothing is kept',
    };
    return words[attention] ?? attention;
}

// Kernels of the same op, layers and reasons are one line.
function passedOver(entries) {
    const alike = new Map();
    for (const { op, kernel, layers, reasons } of entries) {
        const says = ` for ${layers ? `${op}, layers ${layers}` : op}: ${reasons.join('; ')}`;
        alike.set(says, [...alike.get(says) ?? [], kernel]);
    }
    return make('ul', { class: 'over', role: 'list' }, ...[...alike].map(([says, [first, ...others]]) =>
        make('li', {}, make('span', { class: 'mono' }, first), others.length ? ` (and ${others.length} more)` : '', says)));
}

function layerCard(layer, plan) {
    const over = plan.passed_over.filter(({ layers }) => inRange(layer.index, layers));
    const pairs = layer.k ? [['K', formatKey(layer.k)], ['V', formatKey(layer.v)]] : [];
    pairs.push(['cache', layer.state_bytes ? `${bytes(layer.state_bytes)} per sequence`
        : `${count(layer.bytes_per_token)} bytes per token (this layer)`]);
    if (layer.transform !== 'none') pairs.push(['transform', transformText(layer)]);
    if (layer.sink_pages) pairs.push(['16 bits', layer.sink_pages > 1 ? `the first ${layer.sink_pages} pages of a sequence` : 'the first page of a sequence']);
    for (const [op, kernel] of Object.entries(layer.kernels)) {
        const name = op.replace('_', ' ').replace(/ (\d.*)$/, ', $1 tokens').replace(/ small$/, ', small steps');
        pairs.push([name, make('span', { class: 'mono' }, kernel)]);
    }
    return [
        make('h3', {}, `Layer ${layer.index}`, make('span', {}, attentionText(layer))),
        make('dl', {}, ...pairs.flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, value)])),
        over.length ? make('details', { class: 'inner' }, make('summary', {}, `Kernels passed over: ${over.length}`), passedOver(over))
            : make('p', { class: 'small' }, 'No kernel was passed over.'),
    ];
}

// The card hangs under its layer's row for as long as the pointer or the focus is on either.
function showLayer(button, layer, plan) {
    hideLayer();
    const card = byId('layer');
    card.replaceChildren(...layerCard(layer, plan));
    card.style.top = `${button.parentElement.offsetTop + button.parentElement.offsetHeight + 5}px`;
    card.hidden = false;
    button.classList.add('shown');
    button.setAttribute('aria-describedby', 'layer');
}

function hideLayer() {
    const shown = byId('strip').querySelector('.shown');
    if (byId('layer').contains(document.activeElement)) shown?.focus({ preventScroll: true });
    shown?.classList.remove('shown');
    shown?.removeAttribute('aria-describedby');
    byId('layer').hidden = true;
}

// One stop for Tab; arrows go along the layers.
function moveAlong(event) {
    const buttons = [...byId('strip').querySelectorAll('button')], at = buttons.indexOf(document.activeElement);
    const last = buttons.length - 1;
    const steps = { ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: last };
    const to = steps[event.key];
    if (to === undefined || at < 0) return;
    event.preventDefault();
    const next = buttons[Math.max(0, Math.min(to, last))];
    buttons[at].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
}

const LAYERS_PER_ROW = 32;

function drawStrip(plan) {
    const rows = Math.ceil(plan.layers.length / LAYERS_PER_ROW); // as even as they come out
    byId('strip').style.setProperty('--columns', Math.ceil(plan.layers.length / rows));
    byId('strip').replaceChildren(...plan.layers.map(layer => {
        const side = format => make('i', { style: `--colour: ${colourOf(format)}` });
        const reveal = event => { if (!event.currentTarget.classList.contains('shown')) showLayer(event.currentTarget, layer, plan); };
        return make('li', {}, make('button', {
            type: 'button', tabindex: layer.index ? -1 : 0, 'aria-label': `Layer ${layer.index}`,
            'data-attention': layer.attention, mouseenter: reveal, focus: reveal, click: reveal,
        }, side(layer.k), side(layer.v)));
    }));
    byId('ends').lastChild.textContent = `layer ${plan.layers.length - 1}`;
    byId('ends').hidden = false;
}

function drawLegend(plan) {
    const formats = new Map(plan.layers.flatMap(({ k, v, k_bits: kBits, v_bits: vBits }) => k ? [[k, kBits], [v, vBits]] : []));
    const kinds = new Map(plan.layers.map(layer => [attentionText(layer), layer.attention]));
    byId('formats').replaceChildren(
        ...[...formats].map(([format, bits]) => make('li', {}, formatKey(format), `(${bits} bits)`)),
        ...[...kinds].map(([text, kind]) => make('li', {}, make('i', { class: `swatch tall ${kind}` }), text)));
}

// Why weights take more memory than their formats say; nothing where the difference would not be seen.
function packingText({ bytes: all, layout_bytes: layout, copied_bytes: copied }) {
    if (bytes(all) === bytes(all - layout - copied)) return '';
    const signed = size => `${size < 0 ? '−' : '+'}${bytes(Math.abs(size))}`;
    const parts = [[layout, 'by the layout that kernels read'], [copied, 'for second copies']];
    return `; in memory ${parts.filter(([size]) => size).map(([size, why]) => `${signed(size)} ${why}`).join(', ')}`;
}

function drawMemory({ memory, weights, device, layers, passed_over }) {
    const cache = memory.pools.reduce((sum, pool) => sum + pool.page_bytes * pool.pages, 0);
    const shares = [
        ['weights', memory.weights, '--edge'], ['workspace', memory.workspace, '--faint'],
        ['KV cache', cache, '--accent'],
    ];
    cacheTokens = memory.tokens;
    byId('plan-title').textContent = `${device} · ${layers.length} layers`;
    byId('memory').replaceChildren(...shares.map(([, size, colour]) =>
        make('i', { style: `flex: ${size}; --colour: var(${colour})` })));
    byId('shares').replaceChildren(...shares.map(([name, size, colour]) =>
        make('li', {}, swatch(`var(${colour})`), `${name} ${bytes(size)}`)));
    const formats = Object.entries(weights.by_format).sort((a, b) => b[1] - a[1]);
    const listed = formats.map(([name, size]) => `${name} ${bytes(size)}`).join(', ');
    byId('plan-note').textContent = `Weights: ${listed}${packingText(weights)}.`;
    byId('passed').replaceChildren(make('summary', {}, `Kernels passed over: ${passed_over.length}`), passedOver(passed_over));
    byId('passed').hidden = !passed_over.length;
}

// ---- what the plan means --------------------------------------------------------------------------------------------

const sumOf = (list, of) => list.reduce((sum, entry) => sum + of(entry), 0);
const bitsOf = ({ k_bits: k, v_bits: v }) => (k + v) / 2;
const times = ratio => `${ratio.toFixed(ratio < 9.95 ? 1 : 0)}\u00a0×`;

// [a token's bytes, the same with 16 bits per number], of the layers that keep keys and values.
function tokenBytes({ layers }) {
    const cached = layers.filter(({ k, bytes_per_token: size }) => k && size);
    return [sumOf(cached, layer => layer.bytes_per_token), sumOf(cached, layer => layer.bytes_per_token * 16 / bitsOf(layer))];
}

// The card: what someone wants to know within ten seconds.
function drawCard(plan) {
    const { memory, weights } = plan, [size, in16] = tokenBytes(plan), saving = in16 / size;
    const [main] = Object.entries(weights.by_format).sort((a, b) => b[1] - a[1])[0] ?? [''];
    const rows = [
        ...size ? [['1,000 tokens', bytes(1000 * size), saving > 1.05 ? `${times(saving)} less than in 16 bits (${bytes(1000 * in16)})` : 'in 16 bits']] : [],
        ['Cache holds', `${count(memory.tokens)} tokens`, `a conversation up to ${count(maxModelLen)}`],
        ['Weights', bytes(memory.weights), `mostly ${main}`],
    ];
    byId('card').replaceChildren(...rows.flatMap(([name, value, note]) =>
        [make('dt', {}, name), make('dd', {}, make('b', {}, value), make('span', { class: 'small' }, note))]));
    byId('card').hidden = false;
}

const layerList = layers => { // "0-2, 5"
    const runs = [];
    for (const { index } of layers)
        if (runs.at(-1)?.[1] === index - 1) runs.at(-1)[1] = index;
        else runs.push([index, index]);
    return runs.map(([from, to]) => from === to ? from : `${from}-${to}`).join(', ');
};

const groupBy = (list, key) => list.reduce((groups, entry) => groups.set(key(entry), [...groups.get(key(entry)) ?? [], entry]), new Map());

function formatReasons({ layers, next }) {
    const groups = groupBy(layers.filter(({ k }) => k), ({ k, v, format_origin: origin }) => `${k === v ? k : `${k} keys, ${v} values`}, by ${origin}`);
    const smaller = next ? `; ${next.flags.join(' ')} would fit ${times(next.tokens_factor)} as many tokens` : '';
    return [...groups].map(([name, alike]) => {
        const bits = bitsOf(alike[0]), where = groups.size > 1 ? `Layers ${layerList(alike)}: ` : '';
        const cost = bits < 16 ? `a number takes ${bits} bits, its share of the scales included, so ${times(16 / bits)} as many tokens fit as with 16 bits`
            : `a number takes ${bits} bits${smaller}`;
        return `${where}${name}: ${cost}.`;
    });
}

const TRANSFORMS = { centre: 'a calibrated mean is subtracted', rotate: 'a Hadamard rotation spreads outliers', 'centre+rotate': 'a mean is subtracted and a rotation applied' };
const TRANSFORM_ORDER = Object.keys(TRANSFORMS);

function transformReasons({ layers }) {
    const changed = layers.filter(({ transform, k }) => k && transform !== 'none'), measured = layers.filter(({ transform_errors: errors }) => errors);
    if (!changed.length) return [];
    const mean = of => sumOf(measured, of) / measured.length;
    const errors = measured.length ? [mean(({ transform, transform_errors: of }) => of[transform]), mean(({ transform_errors: of }) => of.none)] : null;
    const groups = [...groupBy(changed, ({ transform }) => transform)].sort(([a], [b]) => TRANSFORM_ORDER.indexOf(a) - TRANSFORM_ORDER.indexOf(b));
    const kinds = groups.map(([kind, alike]) => `${TRANSFORMS[kind] ?? kind} (${countOf(alike.length, 'layer')})`);
    const best = errors ? ` Each layer has what was best on calibration text: attention error ${errors[0].toFixed(2)} (${errors[1].toFixed(2)} untransformed).` : '';
    return [`Keys are transformed before they are quantised, which changes no score: ${kinds.join(', ')}.${best}`];
}

function kernelReasons({ layers, kernels }) {
    const sinks = layers.filter(({ sink_pages: pages }) => pages), linear = kernels.filter(({ op, layers }) => op === 'linear' && layers);
    return [
        ...sinks.length ? [`The first page of each sequence stays in 16 bits: much attention goes to the first tokens (layers ${layerList(sinks)}).`] : [],
        ...new Set(linear.map(({ kernel }) => kernel)).size > 1 ? [`Linear layers: ${linear.map(({ kernel, tokens }) => `${kernel} for ${tokens} tokens at a time`).join(', ')}. Few tokens at a time is writing, many is reading.`] : [],
    ];
}

function drawReasons(plan) {
    const reasons = [...formatReasons(plan), ...transformReasons(plan), ...kernelReasons(plan)];
    byId('why').lastElementChild.replaceChildren(...reasons.map(text => make('li', {}, text)));
    byId('why').hidden = !reasons.length;
}

async function loadPlan() {
    try {
        const plan = await (await ask('/v1/plan')).json();
        drawCard(plan);
        drawStrip(plan);
        drawLegend(plan);
        drawMemory(plan);
        drawReasons(plan);
        byId('plan').classList.remove('waiting');
    } catch (error) {
        byId('plan-note').textContent = sentenceOf(error);
    }
}

function preparePlan() {
    const layers = byId('layers');
    on('strip', 'keydown', moveAlong);
    layers.addEventListener('mouseleave', () => { if (!layers.contains(document.activeElement)) hideLayer(); });
    layers.addEventListener('focusout', ({ relatedTarget }) => { if (!layers.contains(relatedTarget)) hideLayer(); });
}

