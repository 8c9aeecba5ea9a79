// ---- sampling ------------------------------------------------------------------------------------------------------

const FIELDS = [ // names as in the request
    { name: 'temperature', label: 'Temperature', min: 0, max: 2, step: .05 },
    { name: 'top_p', label: 'Top p', min: 0, max: 1, step: .05 },
    { name: 'top_k', label: 'Top k', min: 0, step: 1 },
    { name: 'min_p', label: 'Min p', min: 0, max: 1, step: .01 },
    { name: 'max_tokens', label: 'Max tokens', min: 1, step: 1 },
    { name: 'seed', label: 'Seed', step: 1 },
    { name: 'repetition_penalty', label: 'Repetition penalty', min: 0, max: 2, step: .05 },
];

let systemPrompt = '';

function sampling() {
    const set = FIELDS.filter(({ name }) => byId(name).value !== '');
    return Object.fromEntries(set.map(({ name }) => [name, byId(name).valueAsNumber]));
}

function samplingChanged() {
    const set = Object.keys(sampling()).length + (systemPrompt ? 1 : 0);
    byId('sampling-title').textContent = set ? `${set} set` : 'defaults';
    local.set('sampling', { ...sampling(), systemPrompt });
}

function prepareSampling() {
    const kept = local.get('sampling') ?? {}, system = byId('system');
    for (const { name, label, ...limits } of FIELDS) {
        const attributes = { id: name, type: 'number', placeholder: 'default', value: kept[name], ...limits };
        byId('fields').append(make('div', {}, make('label', { for: name }, label),
            make('input', { ...attributes, input: samplingChanged })));
    }
    makeEditable(system);
    system.textContent = systemPrompt = kept.systemPrompt ?? '';
    system.addEventListener('input', () => {
        systemPrompt = typedIn(system);
        if (!systemPrompt) system.replaceChildren(); // so that it is :empty again
        samplingChanged();
    });
    on('reset', 'click', () => {
        for (const { name } of FIELDS) byId(name).value = '';
        system.textContent = systemPrompt = '';
        samplingChanged();
    });
    samplingChanged();
}

