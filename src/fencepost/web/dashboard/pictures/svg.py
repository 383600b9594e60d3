"""SVG elements as markup, with everything escaped."""

from __future__ import annotations

from collections.abc import Iterable

from markupsafe import Markup, escape


def element(name: str, content: str | Markup = "", /, **attributes: object) -> Markup:
    """`class_` is written `class`, other underscores become hyphens; attributes that are None are left out."""
    given = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for name, value in attributes.items()
        if value is not None
    )
    inner = escape(content)
    return Markup(f"<{name}{given}>{inner}</{name}>" if inner else f"<{name}{given}/>")


def joined(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def picture(
    parts: Iterable[Markup], height: float, label: str, width: str = "100%", linked: bool = False
) -> Markup:
    """`label`: the text for screen readers; a table beside the picture has all the data. `linked`: with links for the
    mouse. Hundreds of links would be in the way of users with a screen reader or a keyboard."""
    kind = "picture" if width == "100%" else "picture fixed"
    size: dict[str, object] = {"class_": kind, "width": width, "height": number(height)}
    if not linked:
        return element("svg", joined(parts), role="img", aria_label=label, **size)
    return element("span", label, class_="hidden") + element("svg", joined(parts), aria_hidden="true", **size)


def percent(share: float) -> str:
    """Of the width."""
    return f"{min(max(share, 0.0), 1.0) * 100:.2f}".rstrip("0").rstrip(".") + "%"


def number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def titled(title: str, content: Markup) -> Markup:
    """With a tooltip."""
    return element("g", element("title", title) + content) if title else content
