// ---- light or dark, before the first paint --------------------------------------------------------------------------

try { document.documentElement.dataset.theme = JSON.parse(localStorage.getItem('nibble.theme')) ?? 'auto'; } catch { /* as the system has it */ }
