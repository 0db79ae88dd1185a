"""XML as paths, for those who compare it."""


def flat(element, path=""):
    """Return ``{path: text}`` of an element, its attributes and all below it."""
    out = {f"{path}@{key}": value for key, value in element.attrib.items()}
    if element.text and element.text.strip():
        out[path] = element.text.strip()
    counts = {}
    for child in element:
        counts[child.tag] = number = counts.get(child.tag, -1) + 1
        out |= flat(child, f"{path}/{child.tag}{number or ''}") or {f"{path}/{child.tag}": ""}
    return out
