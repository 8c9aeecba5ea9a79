// ---- changing what is shown without replacing it --------------------------------------------------------------------

const isAlike = (a, b) => a.nodeName === b.nodeName && a.namespaceURI === b.namespaceURI && a.attributes?.length === b.attributes?.length
    && [...a.attributes ?? []].every(({ name, value }) => b.getAttribute(name) === value);

// Text that grows is appended to, so that a selection in it stays.
function patchText(old, data) {
    if (data.startsWith(old.data)) old.appendData(data.slice(old.data.length));
    else old.data = data;
}

// Gives an element the children of a fresh one. Nodes that are alike stay, with their scroll position, focus and
// selection; the others are replaced.
function patch(element, fresh) {
    const old = [...element.childNodes], children = [...fresh.childNodes];
    children.forEach((child, i) => {
        if (!old[i]) element.append(child);
        else if (!isAlike(old[i], child)) old[i].replaceWith(child);
        else if (child.nodeType === Node.TEXT_NODE) patchText(old[i], child.data);
        else patch(old[i], child);
    });
    old.slice(children.length).forEach(node => node.remove());
}

