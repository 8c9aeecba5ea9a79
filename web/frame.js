// ---- the frame: list, panels, theme ---------------------------------------------------------------------------------

// Beside the chat where there is room (unless the root has the class `no-NAME`, which early.js sets, too); else a drawer
// over it, which has the focus until it is closed.
const DRAWERS = {
    list: { button: 'chats-toggle', docked: matchMedia('(min-width: 1181px)') },
    panels: { button: 'fold', docked: matchMedia('(min-width: 861px)') },
};
let drawer = null; // the name of the one that lies over the chat

const isShown = name => DRAWERS[name].docked.matches ? !document.documentElement.classList.contains(`no-${name}`) : drawer === name;

function showState(name) {
    byId(name).classList.toggle('drawer', drawer === name);
    byId(DRAWERS[name].button).setAttribute('aria-expanded', isShown(name));
    follow();
}

function closeDrawer() {
    if (!drawer) return;
    const name = drawer;
    drawer = null;
    showState(name);
    byId('shade').hidden = true;
    byId('chat').inert = false;
    if (!matchMedia('(pointer: coarse)').matches) byId(DRAWERS[name].button).focus();
}

function openDrawer(name) {
    closeDrawer();
    drawer = name;
    showState(name);
    byId('shade').hidden = false;
    byId('chat').inert = true;
    byId(name).querySelector('input, summary').focus();
}

function toggle(name) {
    const shown = isShown(name);
    if (!DRAWERS[name].docked.matches) return shown ? closeDrawer() : openDrawer(name);
    if (shown && byId(name).contains(document.activeElement)) backToField();
    document.documentElement.classList.toggle(`no-${name}`, shown);
    local.set(name, !shown);
    showState(name);
}

function redock(name) {
    if (drawer === name) closeDrawer();
    showState(name);
}

const THEMES = {
    auto: ['Theme: as the system', 'M8 2.5a5.5 5.5 0 1 0 0 11zM8 2.5a5.5 5.5 0 0 1 0 11'],
    light: ['Theme: light', 'M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1v1.4M8 13.6V15M1 8h1.4M13.6 8H15M3 3l1 1M12 12l1 1M3 13l1-1M12 4l1-1'],
    dark: ['Theme: dark', 'M13 9.8A5.5 5.5 0 0 1 6.2 3a5.5 5.5 0 1 0 6.8 6.8z'],
};

function setTheme(theme) {
    const [label, path] = THEMES[theme];
    document.documentElement.dataset.theme = theme;
    byId('theme').title = byId('theme').lastElementChild.textContent = label;
    byId('theme').querySelector('path').setAttribute('d', path);
}

function nextTheme() {
    const names = Object.keys(THEMES), theme = names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length];
    setTheme(theme);
    local.set('theme', theme);
    say(THEMES[theme][0]);
}

function prepareFrame() {
    for (const [name, { button, docked }] of Object.entries(DRAWERS)) {
        on(button, 'click', () => toggle(name));
        docked.addEventListener('change', () => redock(name));
        showState(name);
    }
    on('shade', 'click', closeDrawer);
    on('theme', 'click', nextTheme);
    setTheme(local.get('theme') in THEMES ? local.get('theme') : 'auto');
}

