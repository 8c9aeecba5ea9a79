// ---- what must be known before the first paint: light or dark, and what is folded away ------------------------------

try {
    const kept = name => JSON.parse(localStorage.getItem(`nibble.${name}`));
    document.documentElement.dataset.theme = kept('theme') ?? 'auto';
    for (const name of ['list', 'panels']) document.documentElement.classList.toggle(`no-${name}`, kept(name) === false);
} catch { /* as they are by default */ }
