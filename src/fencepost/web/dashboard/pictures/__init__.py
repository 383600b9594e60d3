"""Pictures, drawn here as SVG: rectangles, lines and text. Lengths across are in percent, so that a picture fits any
width; nothing is styled in place, since the content security policy allows no style but the sheet's."""
