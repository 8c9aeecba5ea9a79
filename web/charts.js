// ---- live charts ---------------------------------------------------------------------------------------------------

const WINDOW_SECONDS = 120, SAMPLE_MS = 1000, AWAY_MS = 4000, TIMEOUT_MS = 5000;
const HEIGHT = 40; // of a chart's own coordinates; its width is WINDOW_SECONDS

// Prometheus text as a map: name -> [{ labels, value }].
function parseMetrics(text) {
    const metrics = new Map();
    for (const line of text.split('\n')) {
        const [, name, labels = '', value] = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/.exec(line) ?? [];
        if (!name) continue;
        const pairs = [...labels.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, label, text]) => [label, text]);
        if (!metrics.has(name)) metrics.set(name, []);
        metrics.get(name).push({ labels: Object.fromEntries(pairs), value: Number(value) });
    }
    return metrics;
}

const total = ({ metrics }, name) => (metrics.get(`vllm:${name}`) ?? []).reduce((sum, { value }) => sum + value, 0);

const soFar = (sample, name) => count(total(sample, `${name}_total`));

// How much a counter grew between two samples; null across a restart of the server.
function grown(now, before, name) {
    const growth = total(now, name) - total(before, name);
    return growth >= 0 ? growth : null;
}
const gauge = name => now => total(now, name);
const perSecond = name => (now, before) => {
    const growth = grown(now, before, name);
    return growth === null ? null : growth / (now.time - before.time);
};
// a / b of what came in between; null when nothing did.
const ratio = (a, b) => (now, before) => {
    const below = grown(now, before, b);
    return below > 0 ? grown(now, before, a) / below : null;
};

// The value below which a share of what a histogram took in lies, linear within its bucket.
function quantile(now, before, name, share) {
    const bounds = new Map();
    for (const [sample, sign] of [[now, 1], [before, -1]])
        for (const { labels, value } of sample.metrics.get(`vllm:${name}_bucket`) ?? [])
            bounds.set(labels.le, (bounds.get(labels.le) ?? 0) + sign * value);
    const buckets = [...bounds].map(([le, number]) => [le === '+Inf' ? Infinity : Number(le), number]);
    buckets.sort((a, b) => a[0] - b[0]);
    const wanted = share * (buckets.at(-1)?.[1] ?? 0);
    let low = 0, below = 0;
    for (const [le, number] of buckets) {
        if (wanted > 0 && number >= wanted)
            return le === Infinity ? low : low + (le - low) * (wanted - below) / (number - below);
        low = le;
        below = number;
    }
    return null;
}

// series: what is drawn; sparse ones are dots, since most samples have none. most: the top of the scale, else what is
// highest in view and at least `least`. about: a line on the samples from the first in view to now.
const CHARTS = [
    {
        title: 'Tokens per second', format: rate, least: 10,
        series: [{ of: perSecond('generation_tokens_total') }],
        about: (_, now) => `${soFar(now, 'generation_tokens')} written, ${soFar(now, 'prompt_tokens')} read`,
    },
    {
        title: 'Running / waiting', format: count, least: 4,
        series: [{ of: gauge('num_requests_running') }, { of: gauge('num_requests_waiting'), colour: 'second' }],
        about: (_, now) => `${soFar(now, 'request_success')} done, ${soFar(now, 'num_preemptions')} preempted`,
    },
    {
        title: 'Cache in use', format: percent, most: 1,
        series: [{ of: gauge('kv_cache_usage_perc') }],
        about: (_, now) => `about ${count(total(now, 'kv_cache_usage_perc') * cacheTokens)} tokens`,
    },
    {
        title: 'Prefix hits', format: percent, most: 1,
        series: [{ of: ratio('prefix_cache_hits_total', 'prefix_cache_queries_total'), sparse: true }],
        about(first, now) {
            const came = name => count(grown(now, first, `prefix_cache_${name}_total`) ?? 0);
            return `${came('hits')} of ${came('queries')} tokens`;
        },
    },
    {
        title: 'First token', format: seconds, least: .1,
        series: [{ of: ratio('time_to_first_token_seconds_sum', 'time_to_first_token_seconds_count'), sparse: true }],
        about(first, now) {
            const [p50, p95] = [.5, .95].map(share => quantile(now, first, 'time_to_first_token_seconds', share));
            return p50 === null ? '' : `p50 ${seconds(p50)}, p95 ${seconds(p95)}`;
        },
    },
];

const samples = []; // { time, metrics, values: per chart and series }, oldest first
let cursor = null;  // seconds ago that the reader looks at; null: now
let cacheTokens = 0; // as the plan says
let paused = false, timer = 0, broken = false;

function prepareCharts() {
    const box = { viewBox: `0 0 ${WINDOW_SECONDS} ${HEIGHT}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' };
    for (const chart of CHARTS) {
        chart.value = make('b', {}, '–');
        chart.svg = makeSvg('svg', box);
        chart.peak = make('span', { class: 'peak' });
        chart.note = make('div', { class: 'small' });
        const caption = make('figcaption', {}, chart.title, chart.value);
        byId('charts').append(make('figure', {}, caption, chart.svg, chart.peak, chart.note));
    }
    const lookAt = ago => {
        const oldest = samples.length ? samples.at(-1).time - samples[0].time : 0;
        cursor = ago === null ? null : Math.max(0, Math.min(ago, oldest));
        drawCharts();
    };
    on('charts', 'pointermove', event => {
        const box = event.target.closest('figure')?.getBoundingClientRect();
        if (box) lookAt((box.right - event.clientX) / box.width * WINDOW_SECONDS);
    });
    on('charts', 'pointerleave', () => lookAt(null));
    on('charts', 'blur', () => lookAt(null));
    on('charts', 'keydown', event => {
        const step = { ArrowLeft: 1, ArrowRight: -1, PageUp: 10, PageDown: -10 }[event.key];
        if (step) lookAt((cursor ?? 0) + step);
        else if (event.key === 'Escape' && cursor !== null) lookAt(null);
        else return;
        event.preventDefault();
        event.stopPropagation();
    });
    on('pause', 'click', () => {
        paused = !paused;
        byId('pause').setAttribute('aria-pressed', paused);
        byId('pause').textContent = paused ? 'Go on' : 'Pause';
        sampleSoon(0);
    });
    document.addEventListener('visibilitychange', () => sampleSoon(0));
}

// Points of a series in the chart's coordinates, newest at the right edge; null where there is no value.
function pointsOf(chart, series, end, top) {
    return samples.map(({ time, values }) => {
        const value = values.get(chart)[series];
        const x = WINDOW_SECONDS - (end - time), y = HEIGHT * (1 - .92 * value / top);
        return value === null ? null : [x.toFixed(2), y.toFixed(2)];
    });
}

// Neighbours are joined, a null in between breaks the line; sparse points are joined over any distance.
function pathsOf(points, { sparse, colour }) {
    const style = colour ? `--colour: var(--${colour})` : undefined, runs = [[]];
    for (const point of points) {
        if (point) runs.at(-1).push(point);
        else if (!sparse) runs.push([]);
    }
    const path = (kind, pieces) => makeSvg('path', { class: kind, d: pieces.join(''), style });
    const area = run => `M${run[0][0]},${HEIGHT}L${run.join('L')}L${run.at(-1)[0]},${HEIGHT}Z`;
    const drawn = runs.filter(run => run.length);
    const paths = [path('area', drawn.map(area)), path('line', drawn.map(run => `M${run.join('L')}`))];
    return sparse ? [...paths, path('dots', points.filter(Boolean).map(point => `M${point}h0`))] : paths;
}

// The sample nearest to a time that has a value of this series.
function nearest(chart, series, time) {
    const known = samples.filter(({ values }) => values.get(chart)[series] !== null);
    const distance = sample => Math.abs(sample.time - time);
    return known.reduce((best, sample) => best && distance(best) < distance(sample) ? best : sample, null);
}

function drawChart(chart, end) {
    const known = samples.flatMap(({ values }) => values.get(chart)).filter(value => value !== null);
    const top = chart.most ?? Math.max(chart.least, ...known);
    const paths = chart.series.flatMap((series, i) => pathsOf(pointsOf(chart, i, end, top), series));
    if (cursor !== null) paths.push(makeSvg('path', { class: 'cursor', d: `M${WINDOW_SECONDS - cursor},0V${HEIGHT}` }));
    chart.svg.replaceChildren(...paths);
    const shown = chart.series.map((_, i) => nearest(chart, i, end - (cursor ?? 0))?.values.get(chart)[i]);
    chart.value.textContent = shown.map(value => value === undefined ? '–' : chart.format(value)).join(' / ');
    chart.note.textContent = cursor !== null ? `${Math.round(cursor)} s ago` : chart.about(samples[0], samples.at(-1));
    chart.peak.textContent = chart.format(top);
}

function drawCharts() {
    if (samples.length) for (const chart of CHARTS) drawChart(chart, samples.at(-1).time);
}

function setHealth(state, text) {
    const health = byId('health');
    if (health.dataset.state === state) return;
    health.dataset.state = state;
    health.firstChild.textContent = text;
}

function addSample(metrics) {
    const before = broken ? null : samples.at(-1), now = { time: performance.now() / 1000, metrics };
    const value = ({ of }) => before || of.length < 2 ? of(now, before) : null; // a rate needs a sample before
    now.values = new Map(CHARTS.map(chart => [chart, chart.series.map(value)]));
    samples.push(now);
    while (samples[0].time < now.time - WINDOW_SECONDS) samples.shift();
    broken = false;
    const passed = metrics.get('nibble:self_test_passed')?.every(({ value }) => value === 1);
    byId('live-title').textContent = passed ? 'self-test passed' : '';
    drawCharts();
}

// One request at a time; none while nobody looks.
async function sample() {
    let wait = SAMPLE_MS;
    try {
        const response = await fetch('/metrics', { signal: AbortSignal.timeout(TIMEOUT_MS) });
        if (!response.ok) throw await troubleOf(response);
        addSample(parseMetrics(await response.text()));
        setHealth('ready', 'connected');
        if (!model && byId('unlock').hidden) connect().catch(() => {});
    } catch {
        setHealth('away', 'out of reach');
        model = null;
        broken = true;
        wait = AWAY_MS;
    }
    sampleSoon(wait);
}

function sampleSoon(wait) {
    clearTimeout(timer);
    if (paused || document.hidden) broken = true; // what grows meanwhile is nobody's rate
    else timer = setTimeout(sample, wait);
}

