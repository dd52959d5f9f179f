// Show the draft's names wherever the reader reads: words, tables, legends, axes, read-outs.
const draftNames = new Map(Object.entries(NAMES));

function renameText(node) {
  const text = node.nodeValue;
  const renamed = text.replace(/\w+/g, (word) => draftNames.get(word) ?? word);
  if (renamed !== text) node.nodeValue = renamed;
}

function renameBelow(root) {
  const walker = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    if (!walker.currentNode.parentElement?.closest("script, style")) renameText(walker.currentNode);
  }
}

renameBelow(document.body);
new MutationObserver((changes) => {
  for (const change of changes) {
    if (change.type === "characterData") renameText(change.target);
    for (const node of change.addedNodes) {
      if (node.nodeType === Node.TEXT_NODE) renameText(node);
      else if (node.nodeType === Node.ELEMENT_NODE) renameBelow(node);
    }
  }
}).observe(document.body, { subtree: true, childList: true, characterData: true });
