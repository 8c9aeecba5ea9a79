// ---- sampling ------------------------------------------------------------------------------------------------------

// name: as in the request; by default also the server's name of its default. off: what means that it does nothing.
const FIELDS = [
    { name: 'temperature', label: 'Temperature', min: 0, max: 100, step: 'any', about: '0 takes the likeliest token; higher is more varied.' },
    { name: 'top_p', label: 'Top p', min: 0, max: 1, step: 'any', about: 'Keeps the likeliest tokens that together have this probability.' },
    { name: 'top_k', label: 'Top k', min: -1, step: 1, about: 'Keeps so many of the likeliest tokens; 0 keeps all.' },
    { name: 'min_p', label: 'Min p', min: 0, max: 1, step: 'any', about: 'Drops tokens below this share of the likeliest token\'s probability.' },
    { name: 'max_tokens', label: 'Max tokens', min: 1, step: 1, about: 'An answer ends here at the latest. Without it, with the context.' },
    { name: 'seed', label: 'Seed', step: 1, about: 'The same seed gives the same answer. Without it, every answer draws anew.' },
];
const MORE_FIELDS = [
    ['Repetition', [
        { name: 'repetition_penalty', default: 'repeat_penalty', label: 'Repetition penalty', min: .01, max: 100, step: 'any', about: 'Above 1, tokens of the prompt and the answer become less likely.' },
        { name: 'presence_penalty', label: 'Presence penalty', min: -2, max: 2, step: 'any', about: 'Taken off tokens that the answer has already, once.' },
        { name: 'frequency_penalty', label: 'Frequency penalty', min: -2, max: 2, step: 'any', about: 'Taken off tokens for each time that the answer has them.' },
        { name: 'repeat_last_n', label: 'Penalty window', min: -1, step: 1, about: 'The three penalties look at so many last tokens; -1: all.' },
    ]],
    ['DRY: no repeated phrases', [
        { name: 'dry_multiplier', label: 'Multiplier', min: 0, max: 100, step: 'any', about: 'How strongly a phrase that would be repeated is held back; 0: off.' },
        { name: 'dry_base', label: 'Base', min: 1, max: 100, step: 'any', about: 'The penalty grows by this factor with each repeated token.' },
        { name: 'dry_allowed_length', label: 'Allowed length', min: 0, step: 1, about: 'Repeats up to so many tokens cost nothing.' },
        { name: 'dry_penalty_last_n', label: 'Window', min: -1, step: 1, about: 'DRY looks at so many last tokens; -1: all.' },
    ]],
    ['Other truncation', [
        { name: 'typical_p', label: 'Typical p', min: .001, max: 1, step: 'any', about: 'Keeps the tokens nearest to the expected surprise; 1: off.' },
        { name: 'top_n_sigma', label: 'Top n sigma', min: -1000, max: 1000, step: 'any', about: 'Keeps logits within so many deviations of the highest; 0: off.' },
        { name: 'top_a', label: 'Top a', min: 0, max: 1, step: 'any', about: 'Drops tokens below this times the square of the highest probability; 0: off.' },
        { name: 'min_keep', label: 'Keep at least', min: 0, step: 1, about: 'Truncation leaves at least so many tokens.' },
        { name: 'xtc_probability', label: 'XTC probability', min: 0, max: 1, step: 'any', about: 'How often the likeliest tokens are left out; 0: never.' },
        { name: 'xtc_threshold', label: 'XTC threshold', min: 0, max: 1, step: 'any', about: 'XTC leaves out tokens above this probability, but for the last of them.' },
    ]],
    ['Adaptive', [
        { name: 'dynatemp_range', label: 'Temperature range', min: 0, max: 100, step: 'any', about: 'The temperature follows the entropy by so much up and down; 0: off.' },
        { name: 'dynatemp_exponent', label: 'Range exponent', min: 0, max: 100, step: 'any', about: 'How entropy becomes temperature within the range.' },
        { name: 'mirostat', label: 'Mirostat', min: 0, max: 2, step: 2, about: '2 keeps the surprise constant instead of truncating; 0: off.' },
        { name: 'mirostat_tau', label: 'Mirostat tau', min: 0, max: 100, step: 'any', about: 'The surprise that mirostat aims at.' },
        { name: 'mirostat_eta', label: 'Mirostat eta', min: 0, max: 1, step: 'any', about: 'How fast mirostat adapts.' },
    ]],
    ['Thoughts', [{ name: 'max_reasoning_tokens', label: 'Thought budget', min: -1, step: 1, about: 'A thought ends after so many tokens; -1: when the model wants.' }]],
];
const ALL_FIELDS = [...FIELDS, ...MORE_FIELDS.flatMap(([, fields]) => fields)];
const WITHOUT = { max_tokens: 'no limit', seed: 'random', max_reasoning_tokens: 'no limit' }; // what is in force where the server has no number

let systemPrompt = '';

// Further fields of the request as a JSON object; null: what is written is none.
function furtherFields() {
    const text = byId('further').value.trim();
    if (!text) return {};
    try {
        const value = JSON.parse(text);
        return value && typeof value === 'object' && !Array.isArray(value) ? value : null;
    } catch {
        return null;
    }
}

const stopStrings = () => byId('stop-strings').value.split('\n').filter(Boolean);

const numbersSet = () => Object.fromEntries(ALL_FIELDS.filter(({ name }) => byId(name).value !== '').map(({ name }) => [name, byId(name).valueAsNumber]));

function sampling() {
    const further = furtherFields(), stops = stopStrings();
    if (!further) throw new Trouble('“Further request fields” is no JSON object, such as {"top_k": 40}; correct it or empty it.');
    return { ...numbersSet(), ...(stops.length && { stop: stops }), ...further };
}

function samplingChanged() {
    const further = furtherFields(), numbers = numbersSet();
    const set = Object.keys(numbers).length + Object.keys(further ?? {}).length + (systemPrompt ? 1 : 0) + (stopStrings().length ? 1 : 0);
    byId('sampling-title').textContent = set ? `${set} set` : 'defaults';
    byId('further').setAttribute('aria-invalid', further === null);
    byId('further-wrong').hidden = further !== null;
    local.set('sampling', { ...numbers, systemPrompt, stops: byId('stop-strings').value, further: byId('further').value });
}

// Sentences appear where there is room for them anyway, so that nothing moves.
function numberField({ name, label, about, min, max, step }) {
    const describe = () => { byId('about-field').textContent = about; };
    return make('div', { mouseenter: describe }, make('label', { for: name }, label),
        make('input', { id: name, type: 'number', inputmode: 'decimal', placeholder: 'default', title: about, min, max, step, input: samplingChanged, focus: describe }));
}

function setSystemPrompt(text) {
    systemPrompt = byId('system').value = text;
    samplingChanged();
}

// The defaults that are in force, from the server; empty fields show them.
async function loadDefaults() {
    const { default_generation_settings: { params }, chat_template_caps: { supports_tools: tools } } = await (await ask('/props')).json();
    for (const field of ALL_FIELDS) {
        const value = params[field.default ?? field.name];
        byId(field.name).placeholder = field.name in WITHOUT ? WITHOUT[field.name] : value === undefined ? 'default' : String(Number(value.toPrecision(6)));
    }
    byId('tools-note').textContent = tools ? 'This model can call tools: give them as "tools", in OpenAI\'s form.' : 'This model\'s chat template knows no tools.';
}

function prepareSampling() {
    const kept = local.get('sampling') ?? {}, texts = { 'stop-strings': kept.stops, further: kept.further, system: kept.systemPrompt };
    byId('fields').append(...FIELDS.map(numberField));
    for (const [title, fields] of MORE_FIELDS)
        byId('more-fields').append(make('fieldset', {}, make('legend', {}, title), make('div', { class: 'fields' }, ...fields.map(numberField))));
    for (const { name } of ALL_FIELDS) byId(name).value = kept[name] ?? '';
    for (const [id, text] of Object.entries(texts)) byId(id).value = isText(text) ? text : '';
    systemPrompt = byId('system').value;
    on('system', 'input', () => { systemPrompt = byId('system').value; samplingChanged(); });
    for (const id of ['stop-strings', 'further']) on(id, 'input', samplingChanged);
    on('reset', 'click', () => {
        for (const { name } of ALL_FIELDS) byId(name).value = '';
        for (const id of Object.keys(texts)) byId(id).value = '';
        setSystemPrompt('');
    });
    byId('more').open = Object.keys(numbersSet()).some(name => !FIELDS.some(field => field.name === name));
    samplingChanged();
}

