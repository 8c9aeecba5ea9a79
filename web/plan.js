// ---- the plan ------------------------------------------------------------------------------------------------------

const swatch = colour => make('i', { class: 'swatch', style: `--colour: ${colour}` });
const colourOf = format => format ? `var(--${CSS.escape(format)}, var(--other))` : 'var(--faint)';
const formatKey = format => make('span', { class: 'key' }, swatch(colourOf(format)), format);

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
    if (layer.transform !== 'none') pairs.push(['transform', layer.transform]);
    for (const [op, kernel] of Object.entries(layer.kernels)) {
        const name = op.replace('_', ' ').replace(/ (\d.*)$/, ', $1 tokens').replace(/ small$/, ', small steps');
        pairs.push([name, make('span', { class: 'mono' }, kernel)]);
    }
    return [
        make('h3', {}, `Layer ${layer.index}`, make('span', {}, attentionText(layer))),
        make('dl', {}, ...pairs.flatMap(([name, value]) => [make('dt', {}, name), make('dd', {}, value)])),
        make('p', { class: 'small' }, over.length ? 'Kernels passed over:' : 'No kernel was passed over.'),
        passedOver(over),
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
        const reveal = event => showLayer(event.currentTarget, layer, plan);
        return make('li', {}, make('button', {
            type: 'button', tabindex: layer.index ? -1 : 0, 'aria-label': `Layer ${layer.index}`,
            'data-attention': layer.attention, mouseenter: reveal, focus: reveal, click: reveal,
        }, side(layer.k), side(layer.v)));
    }));
    byId('ends').lastChild.textContent = `layer ${plan.layers.length - 1}`;
    byId('ends').hidden = false;
}

function drawLegend(plan) {
    const formats = new Set(plan.layers.flatMap(({ k, v }) => k ? [k, v] : []));
    const kinds = new Map(plan.layers.map(layer => [attentionText(layer), layer.attention]));
    byId('formats').replaceChildren(
        ...[...formats].map(format => make('li', {}, formatKey(format))),
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
    const perToken = layers.reduce((sum, layer) => sum + layer.bytes_per_token, 0);
    const formats = Object.entries(weights.by_format).sort((a, b) => b[1] - a[1]);
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
    const listed = formats.map(([name, size]) => `${name} ${bytes(size)}`).join(', ');
    byId('plan-note').textContent = `Context length ${count(maxModelLen)} tokens, cache capacity `
        + `${count(memory.tokens)} tokens, ${count(perToken)} bytes per token (all layers). `
        + `Weights: ${listed}${packingText(weights)}.`;
    const title = make('summary', {}, `Kernels passed over: ${passed_over.length}`);
    byId('passed').replaceChildren(title, passedOver(passed_over));
    byId('passed').hidden = !passed_over.length;
}

async function loadPlan() {
    try {
        const plan = await (await ask('/v1/plan')).json();
        drawStrip(plan);
        drawLegend(plan);
        drawMemory(plan);
    } catch (error) {
        byId('plan-note').textContent = sentenceOf(error);
    }
}

function preparePlan() {
    const layers = byId('layers');
    on('strip', 'keydown', moveAlong);
    layers.addEventListener('mouseleave', () => { if (!layers.contains(document.activeElement)) hideLayer(); });
    layers.addEventListener('focusout', hideLayer);
}

