package picture

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Sizes in pixels, and of text in characters.
const (
	boxWidth, boxHeight = 250, 84
	gapAcross, gapDown  = 30, 46
	margin              = 20
	lineHeight          = 17
	maxLines            = 4
	maxLine             = 60 // characters of a line; some 34 are seen
	maxTitle            = 600
)

// look is how a tone is drawn: the colours of a box and of its edge, and the dashes of the edge.
type look struct{ fill, edge, dashes string }

// looks are those of the tones, in their order.
var looks = [...]look{
	Plain:   {"#f6f8fa", "#57606a", "none"},
	Waiting: {"#ffffff", "#57606a", "5 4"},
	Active:  {"#ddf4ff", "#0969da", "none"},
	Good:    {"#dafbe1", "#1a7f37", "none"},
	Warning: {"#fff8c5", "#9a6700", "none"},
	Bad:     {"#ffebe9", "#cf222e", "none"},
}

// SVG writes the picture as SVG 1.1. Errors are those of w.
func (p Picture) SVG(w io.Writer) error {
	var out bytes.Buffer
	across := 1
	for _, at := range p.at {
		across = max(across, at.of)
	}
	width := 2*margin + across*(boxWidth+gapAcross) - gapAcross
	height := 2*margin + max(p.rows, 1)*(boxHeight+gapDown) - gapDown
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" version="1.1" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13">`+"\n", width, height, width, height)
	fmt.Fprintf(&out, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	corner := func(box int) (x, y int) {
		at := p.at[box]
		row := at.of*(boxWidth+gapAcross) - gapAcross
		return (width-row)/2 + at.column*(boxWidth+gapAcross), margin + at.row*(boxHeight+gapDown)
	}
	for _, a := range p.arrows {
		fromX, fromY := corner(a.From)
		toX, toY := corner(a.To)
		writeArrow(&out, fromX+boxWidth/2, fromY+boxHeight, toX+boxWidth/2, toY)
	}
	for i, box := range p.boxes {
		x, y := corner(i)
		writeBox(&out, box, x, y)
	}
	out.WriteString("</svg>\n")
	_, err := w.Write(out.Bytes())
	return err
}

// writeArrow draws a curve from the bottom of one box to the top of another, with its head.
func writeArrow(out *bytes.Buffer, fromX, fromY, toX, toY int) {
	const head = 7
	bend := gapDown / 2
	fmt.Fprintf(out, `<path d="M%d %d C%d %d %d %d %d %d" fill="none" stroke="#57606a"/>`, fromX, fromY, fromX, fromY+bend, toX, toY-head-bend, toX, toY-head)
	fmt.Fprintf(out, `<path d="M%d %d L%d %d L%d %d z" fill="#57606a"/>`+"\n", toX, toY, toX-head/2, toY-head, toX+head/2, toY-head)
}

// writeBox draws a box. The inner image cuts what it cannot hold.
func writeBox(out *bytes.Buffer, box Box, x, y int) {
	tone := looks[Plain]
	if box.Tone > 0 && int(box.Tone) < len(looks) {
		tone = looks[box.Tone]
	}
	fmt.Fprintf(out, `<svg x="%d" y="%d" width="%d" height="%d" overflow="hidden">`, x, y, boxWidth, boxHeight)
	if box.Title != "" {
		fmt.Fprintf(out, "<title>%s</title>", text(box.Title, maxTitle))
	}
	fmt.Fprintf(out, `<rect x="1" y="1" width="%d" height="%d" rx="6" fill="%s" stroke="%s" stroke-width="2" stroke-dasharray="%s"/>`,
		boxWidth-2, boxHeight-2, tone.fill, tone.edge, tone.dashes)
	for i, line := range box.Lines[:min(len(box.Lines), maxLines)] {
		weight := "normal"
		if i == 0 {
			weight = "bold"
		}
		fmt.Fprintf(out, `<text x="10" y="%d" font-weight="%s" fill="#1f2328">%s</text>`, (i+1)*lineHeight+3, weight, text(line, maxLine))
	}
	out.WriteString("</svg>\n")
}

// text is foreign text for XML: of at most so many characters, without those that are not printed as
// characters of their own, such as control characters and marks that turn the direction of text.
func text(foreign string, most int) string {
	var visible strings.Builder
	for _, c := range foreign {
		if most--; most < 0 {
			visible.WriteRune('…')
			break
		}
		if strconv.IsPrint(c) {
			visible.WriteRune(c)
			continue
		}
		quoted := strconv.QuoteRuneToASCII(c)
		visible.WriteString(quoted[1 : len(quoted)-1])
	}
	var out bytes.Buffer
	_ = xml.EscapeText(&out, []byte(visible.String())) // a buffer takes all
	return out.String()
}
